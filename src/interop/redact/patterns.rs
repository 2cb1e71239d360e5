//! What counts as a secret.

use std::ops::Range;

use regex::{Regex, RegexSet};

use super::RedactError;

/// What every replacement starts with; text that does is no secret any more.
pub(super) const MARK: &str = "[redacted:";

/// Kinds of secrets and what they look like. Where a pattern has a group, only the group is the secret. Word boundaries are those
/// of ASCII: text without spaces between its words may stand around a secret, and the engine is much faster with them.
const BUILT_IN: [(&str, &str); 13] = [
    // PEM blocks, whole, without their end, or without their beginning.
    (
        "private-key",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:(?:[^-]|-[^-])*-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|[A-Za-z0-9+/=\s\\]*)",
    ),
    (
        "private-key",
        r"(?:[A-Za-z0-9+/=]{16,}\s+)+(?:[A-Za-z0-9+/=]+\s*)?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    ),
    // Tokens by the prefixes that their issuers gave them so that they can be found.
    ("token", r"(?-u:\b)(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9_-]{16,}"),
    (
        "token",
        r"(?-u:\b)(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|hf_[A-Za-z0-9]{20,}|xox[abeprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|dop_v1_[a-f0-9]{32,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|GOCSPX-[A-Za-z0-9_-]{16,}|ya29\.[A-Za-z0-9_-]{16,}|AIza[A-Za-z0-9_-]{30,})",
    ),
    ("token", r"(?-u:\b)(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{16}(?-u:\b)"),
    ("token", r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    ("token", r"(?i)(?-u:\b)(?:bearer|basic|token)\s+([A-Za-z0-9._~+/-]{16,}=*)"),
    ("token", r"https://hooks\.slack\.com/services/([A-Za-z0-9/_-]+)"),
    // Passwords in addresses and in assignments.
    ("password", r"(?-u:\b)[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*:([^\s/@]+)@"),
    (
        "password",
        r#"(?i)(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|auth[_-]?token|access[_-]?token|refresh[_-]?token|client[_-]?secret|private[_-]?key)["']?\s*(?:=|:|=>)\s*["']?([^\s"',;&|<>(){}\[\]]{6,})"#,
    ),
    (
        "email",
        r"[A-Za-z0-9._%+\u{c0}-\u{24f}-]+@[A-Za-z0-9\u{c0}-\u{24f}-]+(?:\.[A-Za-z0-9\u{c0}-\u{24f}-]+)*\.[A-Za-z]{2,}",
    ),
    // Only the person's part of a home directory says who it is.
    ("home", r#"(?:/home|/Users|/export/home)/([^/\s"'\\:;,<>|()\[\]{}*?`$]+)"#),
    ("home", r#"(?-u:\b)[A-Za-z]:[\\/]+Users[\\/]+([^\\/\s"':;,<>|*?`]+)"#),
];

/// Names of members whose string values are secrets whatever they look like.
const SECRET_MEMBER: &str = r"(?i)^(?:.*[_.-])?(?:password|passwd|passphrase|secret|secret[_-]?key|api[_-]?key|x-api-key|access[_-]?key|access[_-]?key[_-]?id|secret[_-]?access[_-]?key|auth[_-]?token|access[_-]?token|refresh[_-]?token|id[_-]?token|session[_-]?token|client[_-]?secret|private[_-]?key|authorization|proxy-authorization|cookie|set-cookie)$";

/// The patterns of one redactor.
#[derive(Debug)]
pub(super) struct Patterns {
    kinds: Vec<&'static str>,
    each: Vec<Regex>,
    any: RegexSet,
    secret_member: Regex,
}

/// A piece of text that has to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) range: Range<usize>,
    pub(super) kind: &'static str,
}

impl Patterns {
    /// The built-in patterns and those of the user.
    pub(super) fn new(own: &[String]) -> Result<Self, RedactError> {
        let bad = |pattern: &str, error: &regex::Error| RedactError {
            pattern: pattern.to_owned(),
            detail: error.to_string(),
        };
        let compile = |pattern: &str| Regex::new(pattern).map_err(|error| bad(pattern, &error));
        let sources: Vec<(&'static str, &str)> =
            BUILT_IN.into_iter().chain(own.iter().map(|pattern| ("pattern", pattern.as_str()))).collect();
        let each = sources.iter().map(|(_, pattern)| compile(pattern)).collect::<Result<Vec<_>, _>>()?;
        let any =
            RegexSet::new(sources.iter().map(|(_, pattern)| pattern)).map_err(|error| bad("all together", &error))?;
        let kinds = sources.into_iter().map(|(kind, _)| kind).collect();
        Ok(Self { kinds, each, any, secret_member: compile(SECRET_MEMBER)? })
    }

    /// Whether string values of a member with this name are secrets.
    pub(super) fn is_secret_member(&self, name: &str) -> bool {
        self.secret_member.is_match(name)
    }

    /// Appends the secrets in `text`, in no order; they may overlap.
    pub(super) fn find(&self, text: &str, spans: &mut Vec<Span>) {
        for index in self.any.matches(text) {
            let (Some(pattern), Some(kind)) = (self.each.get(index), self.kinds.get(index)) else { continue };
            for found in pattern.captures_iter(text) {
                let whole = found.get(0);
                let Some(secret) = found.get(1).or(whole).filter(|secret| !secret.is_empty()) else { continue };
                // A replacement may look like the value of an assignment.
                if !secret.as_str().starts_with(MARK) {
                    spans.push(Span { range: secret.range(), kind });
                }
            }
        }
    }
}
