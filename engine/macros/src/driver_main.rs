//! What `#[voxelflow::main]` expands to.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, FnArg, ItemFn, Result, spanned::Spanned};

const EXPECTED: &str = "a driver program is `async fn main(session: Session) -> Result<()>`";

/// A `main` that hands the function over to `voxelflow::__private::driver_main(name, function)`.
pub(crate) fn expand(attributes: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !attributes.is_empty() {
        return Err(Error::new_spanned(attributes, "#[voxelflow::main] takes no arguments"));
    }
    let mut driver: ItemFn = syn::parse2(item)?;
    check(&driver)?;
    // The function keeps its body, attributes and spans: errors in it are shown where it is written.
    driver.sig.ident = syn::Ident::new("__voxelflow_driver", driver.sig.ident.span());
    let visibility = std::mem::replace(&mut driver.vis, syn::Visibility::Inherited);
    Ok(quote! {
        #driver

        #visibility fn main() -> ::std::process::ExitCode {
            let name = option_env!("CARGO_BIN_NAME").unwrap_or(env!("CARGO_PKG_NAME"));
            ::voxelflow::__private::driver_main(name, __voxelflow_driver)
        }
    })
}

fn check(driver: &ItemFn) -> Result<()> {
    let signature = &driver.sig;
    if signature.ident != "main" {
        return Err(Error::new(signature.ident.span(), format!("{EXPECTED}: its name is `main`")));
    }
    if signature.asyncness.is_none() {
        return Err(Error::new(signature.fn_token.span(), format!("{EXPECTED}: it is `async`")));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(&signature.generics, format!("{EXPECTED}: it is not generic")));
    }
    match (signature.inputs.first(), signature.inputs.len()) {
        (Some(FnArg::Typed(_)), 1) => Ok(()),
        _ => Err(Error::new(signature.paren_token.span.join(), format!("{EXPECTED}: it takes the session"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn refusal(attributes: TokenStream, item: TokenStream) -> String {
        expand(attributes, item).expect_err("it must be refused").to_string()
    }

    #[test]
    fn a_driver_becomes_a_main_that_returns_an_exit_code() {
        let item = quote! {
            /// What it does.
            async fn main(session: Session) -> Result<()> { session.nothing().await }
        };
        let expanded: syn::File = syn::parse2(expand(TokenStream::new(), item).unwrap()).unwrap();
        let [syn::Item::Fn(driver), syn::Item::Fn(main)] = expanded.items.as_slice() else {
            panic!("two functions: {}", quote!(#expanded));
        };
        assert_eq!(driver.sig.ident, "__voxelflow_driver");
        assert_eq!(driver.attrs.len(), 1, "the documentation stays with the body");
        assert!(driver.sig.asyncness.is_some());
        assert!(main.sig.asyncness.is_none() && main.sig.inputs.is_empty());
        let output = &main.sig.output;
        assert_eq!(quote!(#output).to_string(), quote!(-> ::std::process::ExitCode).to_string());
        let body = &main.block;
        assert!(quote!(#body).to_string().contains("voxelflow :: __private :: driver_main"));
    }

    #[test]
    fn what_is_no_driver_is_refused_with_what_one_is() {
        let plain = quote! { fn main(session: Session) {} };
        assert!(refusal(TokenStream::new(), plain).contains("it is `async`"));
        let without_session = quote! { async fn main() {} };
        assert!(refusal(TokenStream::new(), without_session).contains("takes the session"));
        let other_name = quote! { async fn run(session: Session) {} };
        assert!(refusal(TokenStream::new(), other_name).contains("its name is `main`"));
        let generic = quote! { async fn main<T>(session: Session) {} };
        assert!(refusal(TokenStream::new(), generic).contains("not generic"));
        let driver = quote! { async fn main(session: Session) {} };
        assert!(refusal(quote!(flavor = "x"), driver).contains("no arguments"));
    }

    #[test]
    fn an_item_that_is_no_function_is_refused() {
        assert!(expand(TokenStream::new(), quote! { struct Main; }).is_err());
    }
}
