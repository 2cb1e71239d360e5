//! JSON objects taken apart into raw members: how the core's typed payloads keep members that they do not know.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::json::JsonText;

/// Members of an object that the type around it does not name, kept in order and as they were.
pub type Extra = Vec<(String, JsonText)>;

/// An object's members, in order; of duplicates the last one counts. Works with `serde_json` only.
pub(crate) struct Object(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
                let mut places: HashMap<String, usize> = HashMap::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if members.len() == SEARCHED_MEMBERS {
                        places.extend(members.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)));
                    }
                    let known = if members.len() < SEARCHED_MEMBERS {
                        members.iter().position(|(name, _)| *name == key)
                    } else {
                        places.get(&key).copied()
                    };
                    if let Some((_, earlier)) = known.and_then(|place| members.get_mut(place)) {
                        *earlier = value;
                        continue;
                    }
                    if members.len() >= SEARCHED_MEMBERS {
                        places.insert(key.clone(), members.len());
                    }
                    members.push((key, value));
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Members up to which an object is searched from the start for a repeated one; a larger one is indexed, so that the cost of
/// reading it follows its size.
const SEARCHED_MEMBERS: usize = 32;

/// How many objects deep a typed view goes. Typed blocks may hold blocks, so without a bound hostile nesting would use up the
/// stack; the text itself may nest to any depth.
const MAX_TYPED_DEPTH: u32 = 64;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// One level of typed reading on this thread; left when dropped.
struct Level;

impl Level {
    fn enter() -> Option<Self> {
        DEPTH.with(|depth| {
            let next = depth.get() + 1;
            (next <= MAX_TYPED_DEPTH).then(|| {
                depth.set(next);
                Self
            })
        })
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}

impl Object {
    /// Takes out member `key`; an error if it is absent.
    pub(crate) fn required<T: DeserializeOwned, E: serde::de::Error>(&mut self, key: &'static str) -> Result<T, E> {
        self.optional(key)?.ok_or_else(|| E::missing_field(key))
    }

    /// Takes out member `key`, if present.
    pub(crate) fn optional<T: DeserializeOwned, E: serde::de::Error>(&mut self, key: &str) -> Result<Option<T>, E> {
        let Some(index) = self.0.iter().position(|(name, _)| name == key) else { return Ok(None) };
        let (_, value) = self.0.remove(index);
        let _level =
            Level::enter().ok_or_else(|| E::custom(format_args!("nested deeper than {MAX_TYPED_DEPTH} objects")))?;
        JsonText::trusted(value.get()).read().map(Some).map_err(|error| E::custom(format_args!("{key}: {error}")))
    }

    /// Takes out a member that must be the string `expected`.
    pub(crate) fn fixed<E: serde::de::Error>(&mut self, key: &'static str, expected: &str) -> Result<(), E> {
        let found: String = self.required(key)?;
        if found == expected {
            Ok(())
        } else {
            Err(E::custom(format_args!("{key} is {found:?}, expected {expected:?}")))
        }
    }

    /// The string member `key`, left in place.
    pub(crate) fn tag(&self, key: &str) -> Option<String> {
        let (_, value) = self.0.iter().find(|(name, _)| name == key)?;
        JsonText::trusted(value.get()).read().ok()
    }

    /// What is left.
    pub(crate) fn rest(self) -> Extra {
        self.0.into_iter().map(|(key, value)| (key, JsonText::trusted(value.get()))).collect()
    }

    /// The whole object as text again.
    pub(crate) fn into_json(self) -> JsonText {
        let mut out = String::from("{");
        for (index, (key, value)) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(&super::json::quoted(key));
            out.push(':');
            out.push_str(value.get());
        }
        out.push('}');
        JsonText::trusted(out)
    }
}

/// Writes one member of an object under construction.
pub(crate) fn write<M: serde::ser::SerializeMap, T: Serialize + ?Sized>(
    map: &mut M,
    key: &str,
    value: &T,
) -> Result<(), M::Error> {
    map.serialize_entry(key, value)
}

/// Writes the members that a type did not know.
pub(crate) fn write_extra<M: serde::ser::SerializeMap>(map: &mut M, extra: &Extra) -> Result<(), M::Error> {
    extra.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))
}

/// Defines a struct that reads from and writes to a JSON object: named members in order, unknown ones kept in `extra`.
/// `required` members must be present, `optional` ones are `Option`s that are left out when `None`, and `fixed` ones are
/// constants that are checked on reading.
macro_rules! json_object {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $ty:ty, $mode:ident $key:literal;)*
            $(=> fixed $fixed_key:literal = $fixed_value:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $ty,)*
            /// Members that this type does not name, kept in order.
            pub extra: $crate::event::object::Extra,
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                self.write_members(&mut map)?;
                map.end()
            }
        }

        impl $name {
            pub(crate) fn write_members<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                $($crate::event::object::write(map, $fixed_key, $fixed_value)?;)*
                $($crate::event::object::json_object!(@write $mode map, $key, self.$field);)*
                $crate::event::object::write_extra(map, &self.extra)
            }

            #[allow(unused_mut, reason = "objects without members of their own take nothing out")]
            pub(crate) fn read_members<E: serde::de::Error>(
                mut object: $crate::event::object::Object,
            ) -> Result<Self, E> {
                $(object.fixed($fixed_key, $fixed_value)?;)*
                Ok(Self {
                    $($field: $crate::event::object::json_object!(@read $mode object, $key),)*
                    extra: object.rest(),
                })
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::read_members($crate::event::object::Object::deserialize(deserializer)?)
            }
        }
    };
    (@write required $map:ident, $key:literal, $value:expr) => {
        $crate::event::object::write($map, $key, &$value)?
    };
    (@write optional $map:ident, $key:literal, $value:expr) => {
        if let Some(value) = &$value {
            $crate::event::object::write($map, $key, value)?
        }
    };
    (@read required $object:ident, $key:literal) => {
        $object.required($key)?
    };
    (@read optional $object:ident, $key:literal) => {
        $object.optional($key)?
    };
}

/// Defines an open enum over objects tagged by a string member: known tags become structs, anything else is kept verbatim.
macro_rules! json_choice {
    (
        $(#[$meta:meta])*
        pub enum $name:ident by $tag:literal {
            $($(#[$variant_meta:meta])* $variant:ident($ty:ty) = $value:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_meta])* $variant($ty),)*
            /// A kind that this crate does not know, verbatim.
            Other($crate::event::JsonText),
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                match self {
                    $(Self::$variant(inner) => {
                        let mut map = serializer.serialize_map(None)?;
                        $crate::event::object::write(&mut map, $tag, $value)?;
                        inner.write_members(&mut map)?;
                        map.end()
                    })*
                    Self::Other(text) => serde::Serialize::serialize(text, serializer),
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                use serde::de::Error as _;
                let mut object = $crate::event::object::Object::deserialize(deserializer)?;
                let tag = object.tag($tag).ok_or_else(|| D::Error::missing_field($tag))?;
                match tag.as_str() {
                    $($value => {
                        object.fixed::<D::Error>($tag, $value)?;
                        <$ty>::read_members(object).map(Self::$variant)
                    })*
                    _ => Ok(Self::Other(object.into_json())),
                }
            }
        }
    };
}

pub(crate) use json_choice;
pub(crate) use json_object;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_repeated_members_the_last_value_counts_in_the_first_place_however_many_there_are() {
        for count in [3, SEARCHED_MEMBERS - 1, SEARCHED_MEMBERS, SEARCHED_MEMBERS + 1, 5 * SEARCHED_MEMBERS] {
            let members: Vec<String> = (0..count).map(|member| format!("\"m{member}\":{member}")).collect();
            let members = members.join(",");
            let repeated = format!("\"m1\":\"again\",\"m{}\":\"twice\",\"new\":1,\"new\":2", count - 1);
            let text = format!("{{{members},{repeated}}}");
            let object: Object = JsonText::parse(&text).unwrap().read().unwrap();
            let rest = object.rest();
            assert_eq!(rest.len(), count + 1);
            let value = |place: usize| (rest[place].0.as_str(), rest[place].1.as_str());
            assert_eq!(value(0), ("m0", "0"));
            assert_eq!(value(1), ("m1", "\"again\""));
            assert_eq!(value(count - 1).1, "\"twice\"");
            assert_eq!(value(count), ("new", "2"));
        }
    }
}
