//! One field of a request.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, ExprLit, GenericArgument, Ident, Lit, Meta, PathArguments, Token, Type};

/// Whether a client may omit a field, by the field's type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any other type.
    Required,
    /// `Option<T>`. `required`: a client must send it; it is `None` only if there is a problem with it.
    Optional { required: bool },
    /// `PatchField<T>`: omitted, null, or a value.
    Patch,
    /// Any other type, with a default.
    Defaulted,
    /// The fields of another request.
    Flattened,
}

pub struct Field {
    pub ident: Ident,
    pub kind: Kind,
    /// The type of its value, without `Option` or `PatchField`.
    value: Type,
    attributes: FieldAttributes,
    description: String,
}

/// `#[field(format, default = …, example = …, extension, required)]` or `#[field(flatten)]`
struct FieldAttributes {
    format: Expr,
    default: Option<Expr>,
    /// `Some(None)`: the example of the format.
    example: Option<Option<Expr>>,
    is_extension: bool,
    is_required: bool,
}

impl Parse for FieldAttributes {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let format = input.parse()?;
        let mut found = Self { format, default: None, example: None, is_extension: false, is_required: false };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let key = Ident::parse_any(input)?;
            let value = if input.peek(Token![=]) {
                input.parse::<Token![=]>()?;
                Some(input.parse::<Expr>()?)
            } else {
                None
            };
            match (key.to_string().as_str(), value) {
                ("default", Some(value)) => found.default = Some(value),
                ("example", value) => found.example = Some(value),
                ("extension", None) => found.is_extension = true,
                ("required", None) => found.is_required = true,
                _ => {
                    let message = "expected `default = …`, `example`, `example = …`, `extension` or `required`";
                    return Err(syn::Error::new_spanned(key, message));
                }
            }
        }
        Ok(found)
    }
}

impl Field {
    pub fn parse(field: &syn::Field) -> syn::Result<Self> {
        let attribute = field.attrs.iter().find(|attribute| attribute.path().is_ident("field"));
        let attribute = attribute.ok_or_else(|| syn::Error::new_spanned(field, "a field needs `#[field(format)]`"))?;
        let attributes: FieldAttributes = attribute.parse_args()?;
        let ident = field.ident.clone().ok_or_else(|| syn::Error::new_spanned(field, "a field needs a name"))?;
        let is_flattened = matches!(&attributes.format, Expr::Path(path) if path.path.is_ident("flatten"));
        let (kind, value) = match generic(&field.ty) {
            _ if is_flattened => (Kind::Flattened, field.ty.clone()),
            Some((name, value)) if name == "Option" => {
                (Kind::Optional { required: attributes.is_required }, value.clone())
            }
            Some((name, value)) if name == "PatchField" => (Kind::Patch, value.clone()),
            _ if attributes.default.is_some() => (Kind::Defaulted, field.ty.clone()),
            _ => (Kind::Required, field.ty.clone()),
        };
        Ok(Self { ident, kind, value, attributes, description: doc(&field.attrs) })
    }

    /// Returns its name in a request.
    fn name(&self) -> String {
        self.ident.unraw().to_string()
    }

    fn format_name(&self) -> Ident {
        format_ident!("format_of_{}", self.ident.unraw())
    }

    /// Returns the function that returns its format. Its signature makes a format of another type not compile.
    pub fn format_function(&self) -> TokenStream {
        if self.kind == Kind::Flattened {
            return TokenStream::new();
        }
        let (name, value, format) = (self.format_name(), &self.value, &self.attributes.format);
        quote!(fn #name() -> impl crate::request::Format<Value = #value> { #format })
    }

    pub fn read(&self) -> TokenStream {
        let (ident, name, format) = (&self.ident, self.name(), self.format_name());
        let value = &self.value;
        let read = quote!(crate::request::Format::read(&#format(), reader, #name));
        match self.kind {
            Kind::Required | Kind::Optional { required: true } => quote!(let #ident = reader.required(#name, #read);),
            Kind::Optional { required: false } => quote!(let #ident = #read.value();),
            Kind::Patch => quote!(let #ident = #read;),
            Kind::Defaulted => {
                let default = &self.attributes.default;
                quote!(let #ident = #read.value().unwrap_or_else(|| ::core::convert::Into::into(#default));)
            }
            Kind::Flattened => quote!(let #ident = <#value as crate::request::Request>::read(reader);),
        }
    }

    pub fn spec(&self) -> TokenStream {
        if self.kind == Kind::Flattened {
            let value = &self.value;
            return quote!(all.extend(<#value as crate::request::Request>::fields(generator)););
        }
        let (name, format, description) = (self.name(), self.format_name(), &self.description);
        let is_required = matches!(self.kind, Kind::Required | Kind::Optional { required: true });
        let is_extension = self.attributes.is_extension;
        let default = match &self.attributes.default {
            Some(default) => quote!(::core::option::Option::Some(::serde_json::json!(#default))),
            None => quote!(::core::option::Option::None),
        };
        quote! {
            all.push(crate::request::FieldSpec {
                name: #name,
                description: #description,
                schema: crate::request::Format::schema(&#format(), generator),
                is_required: #is_required,
                accepts_null: crate::request::Format::accepts_null(&#format()),
                is_extension: #is_extension,
                default: #default,
            });
        }
    }

    pub fn add_example(&self) -> TokenStream {
        if self.kind == Kind::Flattened {
            let value = &self.value;
            return quote!(example.extend(<#value as crate::request::Request>::example()););
        }
        let (name, format) = (self.name(), self.format_name());
        match &self.attributes.example {
            None => TokenStream::new(),
            Some(Some(value)) => quote!(example.insert(#name.into(), ::serde_json::json!(#value));),
            Some(None) => quote!(example.insert(#name.into(), crate::request::Format::example(&#format()));),
        }
    }
}

/// Returns the name and the argument of a type with one argument.
fn generic(ty: &Type) -> Option<(&Ident, &Type)> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(value) if arguments.args.len() == 1 => Some((&last.ident, value)),
        _ => None,
    }
}

/// Returns a doc comment as one paragraph.
pub fn doc(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(line).collect::<Vec<_>>().join(" ")
}
