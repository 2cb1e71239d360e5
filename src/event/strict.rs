//! A serde serializer that writes JSON and refuses what JSON would change silently (rule E2).
//!
//! It wraps `serde_json`'s serializer value by value, so every value is checked in the same pass that writes it.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

/// Why serialization stopped.
#[derive(Debug)]
pub(crate) enum Refused {
    NotLossless(String),
    Custom(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLossless(text) | Self::Custom(text) => f.write_str(text),
        }
    }
}

/// Marks a refusal while it travels through `serde_json`'s own error type.
const MARK: &str = "\u{1}not-lossless:";

pub(crate) fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, Refused> {
    serde_json::to_string(&Strict(value)).map_err(|error| {
        let text = error.to_string();
        match text.strip_prefix(MARK) {
            Some(what) => Refused::NotLossless(what.to_owned()),
            None => Refused::Custom(text),
        }
    })
}

fn refuse<E: ser::Error>(what: &str) -> E {
    E::custom(format_args!("{MARK}{what}"))
}

struct Strict<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Serialize for Strict<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Checked(serializer))
    }
}

/// Passes everything on to the inner serializer, wrapping each nested value in [`Strict`].
struct Checked<S>(S);

fn check_float<E: ser::Error>(number: f64) -> Result<(), E> {
    if number.is_nan() {
        Err(refuse("NaN"))
    } else if number.is_infinite() {
        Err(refuse("an infinite number"))
    } else if number == 0.0 && number.is_sign_negative() {
        Err(refuse("negative zero"))
    } else {
        Ok(())
    }
}

macro_rules! pass_on {
    ($($method:ident($($arg:ident: $ty:ty),*);)*) => {
        $(fn $method(self, $($arg: $ty),*) -> Result<S::Ok, S::Error> {
            self.0.$method($($arg),*)
        })*
    };
}

impl<S: Serializer> Serializer for Checked<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Checked<S::SerializeSeq>;
    type SerializeTuple = Checked<S::SerializeTuple>;
    type SerializeTupleStruct = Checked<S::SerializeTupleStruct>;
    type SerializeTupleVariant = Checked<S::SerializeTupleVariant>;
    type SerializeMap = Checked<S::SerializeMap>;
    type SerializeStruct = Checked<S::SerializeStruct>;
    type SerializeStructVariant = Checked<S::SerializeStructVariant>;

    pass_on! {
        serialize_bool(v: bool);
        serialize_i8(v: i8);
        serialize_i16(v: i16);
        serialize_i32(v: i32);
        serialize_i64(v: i64);
        serialize_i128(v: i128);
        serialize_u8(v: u8);
        serialize_u16(v: u16);
        serialize_u32(v: u32);
        serialize_u64(v: u64);
        serialize_u128(v: u128);
        serialize_char(v: char);
        serialize_str(v: &str);
        serialize_bytes(v: &[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    fn serialize_f32(self, number: f32) -> Result<S::Ok, S::Error> {
        check_float(f64::from(number))?;
        self.0.serialize_f32(number)
    }

    fn serialize_f64(self, number: f64) -> Result<S::Ok, S::Error> {
        check_float(number)?;
        self.0.serialize_f64(number)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&Strict(value))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_struct(name, &Strict(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_variant(name, index, variant, &Strict(value))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.0.serialize_seq(len).map(Checked)
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.0.serialize_tuple(len).map(Checked)
    }

    fn serialize_tuple_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.0.serialize_tuple_struct(name, len).map(Checked)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.0.serialize_tuple_variant(name, index, variant, len).map(Checked)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.0.serialize_map(len).map(Checked)
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeStruct, S::Error> {
        self.0.serialize_struct(name, len).map(Checked)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.0.serialize_struct_variant(name, index, variant, len).map(Checked)
    }
}

macro_rules! pass_elements {
    ($($compound:ident, $method:ident;)*) => {
        $(impl<S: ser::$compound> ser::$compound for Checked<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                self.0.$method(&Strict(value))
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

pass_elements! {
    SerializeSeq, serialize_element;
    SerializeTuple, serialize_element;
    SerializeTupleStruct, serialize_field;
    SerializeTupleVariant, serialize_field;
}

macro_rules! pass_fields {
    ($($compound:ident;)*) => {
        $(impl<S: ser::$compound> ser::$compound for Checked<S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), S::Error> {
                self.0.serialize_field(key, &Strict(value))
            }

            fn skip_field(&mut self, key: &'static str) -> Result<(), S::Error> {
                self.0.skip_field(key)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.0.end()
            }
        })*
    };
}

pass_fields! {
    SerializeStruct;
    SerializeStructVariant;
}

impl<S: ser::SerializeMap> ser::SerializeMap for Checked<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        if key.serialize(KeyIsString).is_err() {
            return Err(refuse("a map key that is not a string"));
        }
        self.0.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_value(&Strict(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

/// Accepts only what is written as a string by its own nature: strings, characters and unit variants.
struct KeyIsString;

#[derive(Debug)]
struct NotAString;

impl fmt::Display for NotAString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a string")
    }
}

impl std::error::Error for NotAString {}

impl ser::Error for NotAString {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

macro_rules! not_a_key {
    ($($method:ident($($ty:ty),*);)*) => {
        $(fn $method(self, $(_: $ty),*) -> Result<(), NotAString> {
            Err(NotAString)
        })*
    };
}

impl Serializer for KeyIsString {
    type Ok = ();
    type Error = NotAString;
    type SerializeSeq = ser::Impossible<(), NotAString>;
    type SerializeTuple = ser::Impossible<(), NotAString>;
    type SerializeTupleStruct = ser::Impossible<(), NotAString>;
    type SerializeTupleVariant = ser::Impossible<(), NotAString>;
    type SerializeMap = ser::Impossible<(), NotAString>;
    type SerializeStruct = ser::Impossible<(), NotAString>;
    type SerializeStructVariant = ser::Impossible<(), NotAString>;

    fn serialize_str(self, _: &str) -> Result<(), NotAString> {
        Ok(())
    }

    fn serialize_char(self, _: char) -> Result<(), NotAString> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), NotAString> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), NotAString> {
        value.serialize(self)
    }

    not_a_key! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), NotAString> {
        Err(NotAString)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), NotAString> {
        Err(NotAString)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, NotAString> {
        Err(NotAString)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, NotAString> {
        Err(NotAString)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, NotAString> {
        Err(NotAString)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, NotAString> {
        Err(NotAString)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, NotAString> {
        Err(NotAString)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, NotAString> {
        Err(NotAString)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, NotAString> {
        Err(NotAString)
    }
}
