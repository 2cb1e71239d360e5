# The steps of `.ci/run` one at a time, and what is done beside them.

set shell := ["bash", "-euo", "pipefail", "-c"]

# All checks, in the order of their cost.
all: format lint layers msrv test doctest docs examples reader fuzz benches budget

format:
    cargo fmt --all --check

lint:
    cargo clippy --all-targets -- -D warnings
    cargo clippy --no-default-features --all-targets -- -D warnings

# The model and the engine stand without tokio and clap.
layers:
    cargo check --no-default-features
    cargo check --no-default-features --features store

# The stated minimum Rust version compiles the library and the command.
msrv:
    .ci/msrv

test:
    cargo nextest run --no-fail-fast

doctest:
    cargo test --doc

docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps

examples:
    .ci/examples

# format-spec/reader.py, which knows the specification alone, prints what the engine prints.
reader:
    .ci/reader

# Every fuzz target for a minute each, from the committed seeds.
fuzz seconds="60":
    .ci/fuzz {{seconds}}

benches:
    cargo bench --no-run

# The command, its manual pages and completions, under a prefix.
install prefix=(env_var("HOME") / ".local"):
    cargo install --path . --locked --root {{prefix}}
    {{prefix}}/bin/sessionlog man --output {{prefix}}/share/man/man1 >/dev/null
    mkdir -p {{prefix}}/share/bash-completion/completions {{prefix}}/share/zsh/site-functions {{prefix}}/share/fish/vendor_completions.d
    {{prefix}}/bin/sessionlog completions bash > {{prefix}}/share/bash-completion/completions/sessionlog
    {{prefix}}/bin/sessionlog completions zsh > {{prefix}}/share/zsh/site-functions/_sessionlog
    {{prefix}}/bin/sessionlog completions fish > {{prefix}}/share/fish/vendor_completions.d/sessionlog.fish

# Instructions of fixed work, compared with the figures in benches/budget/.
budget:
    .ci/budget

# The figures beside their goals, without other stores.
bench:
    cargo bench --bench goals

# The figures beside other stores and the machine's limits, as a report with charts in benches/report/.
report *words:
    cargo run --release --example bench_report -- {{words}}
