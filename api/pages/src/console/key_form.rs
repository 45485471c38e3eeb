//! What the forms for new keys share: the fields for the name and the brands, and the write.

use crier_domain::access::{KeyName, MAX_KEYS};
use crier_endpoints::error::{ApiError, ErrorCode, FieldProblems, Result};
use crier_store::keys::{self, NewKey};
use secrecy::ExposeSecret;

use super::agent_access::{self, ChosenBrands};
use super::form_write::{FormWrite, Submission};
use super::shared::{Choice, FieldErrors};
use super::visit::{Visit, form_errors};

/// The fields as the form shows them.
pub struct KeyFields {
    pub name: String,
    pub brands: Vec<Choice>,
    pub has_all_brands: bool,
}

impl KeyFields {
    /// Returns the submitted fields. `default`: the brands that are chosen before; `None` for all.
    pub fn of(visit: &Visit, default: Option<&[i64]>) -> Self {
        let (chosen, has_all_brands) = match visit.form.has("_key") {
            true => (visit.form.ids("brands"), agent_access::is_all(visit)),
            false => (default.unwrap_or_default().to_vec(), default.is_none()),
        };
        let brands = agent_access::brands(visit, &chosen);
        Self { name: visit.form.get("name").to_owned(), brands, has_all_brands }
    }
}

/// Reads the fields. `None` if one of them has a problem, which is added.
pub fn read(visit: &Visit, problems: &mut FieldProblems) -> Option<(Option<KeyName>, ChosenBrands)> {
    let name = visit.form.text("name").map(str::parse::<KeyName>).transpose();
    if let Err(problem) = &name {
        problems.insert("name".to_owned(), vec![(*problem).to_owned()]);
    }
    let brands = ChosenBrands::read(visit);
    if brands.is_none() {
        problems.insert("brands".to_owned(), vec![agent_access::NO_BRANDS.to_owned()]);
    }
    name.ok().zip(brands)
}

/// Creates a key, once for each form, and returns it. The inner error is shown with the form.
pub async fn create(visit: &Visit, new: &NewKey<'_>) -> Result<std::result::Result<String, FieldErrors>> {
    let mut write = match FormWrite::begin(visit).await? {
        Submission::Repeated(key) => return Ok(Ok(String::from_utf8_lossy(&key).into_owned())),
        Submission::First(write) => write,
    };
    let Some(key) = keys::create_within_cap(&mut write.tx, visit.user_id(), new).await? else {
        let error = write.reject::<()>(too_many_keys()).await.err().unwrap_or_else(too_many_keys);
        return Ok(Err(form_errors(error)?));
    };
    write.finish(key.expose_secret().as_bytes()).await?;
    Ok(Ok(key.expose_secret().to_owned()))
}

fn too_many_keys() -> ApiError {
    let message = format!(
        "You have {MAX_KEYS} API keys, the maximum. Revoke a key that you no longer use, then create the new one."
    );
    ApiError::new(ErrorCode::LimitReached, message)
}
