//! `#[derive(Request)]`: implements the reader, the schema and the example of a request from the attributes of its
//! fields. The attributes are explained where the trait is, in `api/endpoints/src/request/mod.rs`.
//!
//! **To add an attribute:** read it in `field.rs`, use it in the code that is generated, and explain it beside the trait.

mod field;

use field::{Field, Kind};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Fields, LitStr, Path, parse_macro_input};

/// Implements `Request` and `JsonSchema`.
#[proc_macro_derive(Request, attributes(request, field))]
pub fn derive_request(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// The attributes of the struct.
#[derive(Default)]
struct Attributes {
    name: Option<LitStr>,
    check: Option<Path>,
}

impl Attributes {
    fn parse(input: &DeriveInput) -> syn::Result<Self> {
        let mut found = Self::default();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("request")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("name") {
                    found.name = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("check") {
                    found.check = Some(meta.value()?.parse()?);
                } else {
                    return Err(meta.error("expected `name = \"…\"` or `check = function`"));
                }
                Ok(())
            })?;
        }
        Ok(found)
    }
}

fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new_spanned(input, "only a struct can be a request"));
    };
    let Fields::Named(named) = &data.fields else {
        return Err(syn::Error::new_spanned(input, "the fields of a request have names"));
    };
    let attributes = Attributes::parse(input)?;
    let fields = named.named.iter().map(Field::parse).collect::<syn::Result<Vec<_>>>()?;
    let ident = &input.ident;
    let name = attributes.name.map_or_else(|| ident.to_string(), |name| name.value());
    let description = field::doc(&input.attrs);
    let formats = fields.iter().map(Field::format_function);
    let reads = fields.iter().map(Field::read);
    let specs = fields.iter().map(Field::spec);
    let examples = fields.iter().map(Field::add_example);
    let values = fields.iter().map(|field| {
        let ident = &field.ident;
        match field.kind {
            Kind::Required | Kind::Flattened => quote!(#ident: #ident?),
            Kind::Optional { .. } | Kind::Patch | Kind::Defaulted => quote!(#ident),
        }
    });
    let check = attributes.check.map(|check| quote!(#check(&request, reader);));
    Ok(quote! {
        const _: () = {
            #[allow(unused_imports, reason = "a request may use only formats of its own file")]
            use crate::request::formats::*;

            #(#formats)*

            impl crate::request::Request for #ident {
                fn read(reader: &crate::fields::Fields<'_>) -> ::core::option::Option<Self> {
                    #(#reads)*
                    let request = Self { #(#values),* };
                    #check
                    ::core::option::Option::Some(request)
                }

                fn fields(generator: &mut ::schemars::SchemaGenerator) -> ::std::vec::Vec<crate::request::FieldSpec> {
                    let mut all = ::std::vec::Vec::new();
                    #(#specs)*
                    all
                }

                #[allow(unused_mut, reason = "a request may have no example")]
                fn example() -> ::serde_json::Map<::std::string::String, ::serde_json::Value> {
                    let mut example = ::serde_json::Map::new();
                    #(#examples)*
                    example
                }
            }

            impl ::schemars::JsonSchema for #ident {
                fn schema_name() -> ::std::borrow::Cow<'static, str> {
                    #name.into()
                }

                fn json_schema(generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                    crate::request::object_schema(<Self as crate::request::Request>::fields(generator), #description)
                }
            }
        };
    })
}
