//! The images and videos in the composer: those of the post, of an account and of a part of the thread.

use std::collections::{BTreeSet, HashMap};

use crier_endpoints::error::Result;
use crier_platforms::link_card;
use crier_store::{Conn, media};
use serde_json::Value;

use super::composer_input::{ComposerInput, Stored};
use super::composer_override::AccountOverride;
use super::post_options::is_image;
use super::post_rows::image;
use super::shared::{Choice, Image};
use super::visit::Visit;

/// The images of an account, or of a part of the thread.
pub enum AccountImages {
    /// The images of the post.
    Same,
    Own(Vec<Image>),
    /// The user is choosing them: the current ones, and others.
    Picking {
        own: Vec<Image>,
        others: Vec<Image>,
    },
}

/// The chosen images of the post and of its accounts.
pub struct Chosen {
    found: HashMap<i64, Image>,
    /// Deleted images of what is published. They stay in the form, because what is published cannot change.
    deleted: BTreeSet<i64>,
}

impl Chosen {
    pub async fn load(visit: &Visit, conn: &mut Conn, input: &ComposerInput, stored: Option<&Stored>) -> Result<Self> {
        let own = input.overrides.iter().filter_map(|account_override| account_override.media.as_ref()).flatten();
        let cards = input.overrides.iter().filter_map(|own| own.link_card_field("media_id").parse::<i64>().ok());
        let covers = input.overrides.iter().flat_map(AccountOverride::images_of_options);
        let parts = input.thread.iter().flat_map(|part| &part.media);
        let published = stored.map(published_media).unwrap_or_default();
        // All of them, because an image that is not loaded is not in the form, and would be removed from the post.
        let chosen = input.media.iter().chain(own).chain(parts).chain(&published).copied().chain(cards).chain(covers);
        let ids: Vec<i64> = chosen.collect::<BTreeSet<i64>>().into_iter().collect();
        let found = media::find_many(conn, visit.brand()?.0.id, &ids).await?;
        let found: HashMap<i64, Image> = found.into_iter().map(|asset| (asset.id, image(visit, asset))).collect();
        let deleted = published.into_iter().filter(|id| !found.contains_key(id)).collect();
        Ok(Self { found, deleted })
    }

    /// Returns the images with these IDs, in order. Deleted images are omitted.
    pub fn of(&self, ids: &[i64]) -> Vec<Image> {
        ids.iter().filter_map(|id| self.found.get(id).cloned()).collect()
    }

    /// Returns the images for a field with these IDs, in order. Includes deleted images of what is published, without a
    /// file.
    pub fn in_field(&self, ids: &[i64]) -> Vec<Image> {
        let deleted = |id: i64| {
            let image = || Image { id, filename: "Deleted image".to_owned(), ..Image::default() };
            self.deleted.contains(&id).then(image)
        };
        ids.iter().filter_map(|id| self.found.get(id).cloned().or_else(|| deleted(*id))).collect()
    }

    /// Removes deleted images from a part of a request that checks the post. The check does not know what is published.
    pub fn remove_deleted(&self, request: &mut Value) {
        match request {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value {
                        Value::Array(ids) if name == "media" => {
                            ids.retain(|id| id.as_i64().is_none_or(|id| !self.deleted.contains(&id)));
                        }
                        value => self.remove_deleted(value),
                    }
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|value| self.remove_deleted(value)),
            _ => {}
        }
    }
}

/// Returns the images of what is published: of whole posts, and of the parts of threads that stopped later.
fn published_media(stored: &Stored) -> BTreeSet<i64> {
    let mut ids: BTreeSet<i64> = BTreeSet::new();
    for target in &stored.targets {
        let parts = if target.status.was_published() { usize::MAX } else { target.published_parts.len() };
        let Some(following) = parts.checked_sub(1) else { continue };
        ids.extend(target.media.as_ref().unwrap_or(&stored.post.media));
        ids.extend(target.thread(&stored.post).iter().take(following).flat_map(|part| &part.media));
        ids.extend(target.options.get(link_card::OPTION).and_then(|card| card.get("media_id")?.as_i64()));
        ids.extend(target.options.iter().filter(|(name, _)| is_image(name)).filter_map(|(_, id)| id.as_i64()));
    }
    ids
}

/// The accounts and images to choose from.
pub struct Offered {
    /// The number of accounts.
    pub accounts: usize,
    pub chosen: Chosen,
    /// A page of the library.
    pub library: Vec<Image>,
}

impl Offered {
    /// Returns the choices of an option that is an image: the chosen one, and those of the library's page. The first
    /// choice is that of no image.
    pub fn image_choices(&self, chosen: &str, none: &str) -> Vec<Choice> {
        let id: Vec<i64> = chosen.parse::<i64>().into_iter().collect();
        let images = self.chosen.in_field(&id).into_iter().chain(self.library_without(&id));
        let choice = |image: Image| {
            let value = image.id.to_string();
            Choice::new(&value, image.label(), value == chosen)
        };
        let images = images.filter(|image| image.video.is_none()).map(choice);
        [Choice::new("", none, chosen.is_empty())].into_iter().chain(images).collect()
    }

    /// Returns the images of the library's page without those with these IDs.
    pub fn library_without(&self, ids: &[i64]) -> Vec<Image> {
        self.library.iter().filter(|image| !ids.contains(&image.id)).cloned().collect()
    }

    pub fn for_account(&self, account_override: &AccountOverride, input: &ComposerInput) -> AccountImages {
        match &account_override.media {
            Some(ids) => self.images(ids, input.picking == Some(account_override.account_id), input),
            None => AccountImages::Same,
        }
    }

    /// Returns the images with these IDs, and those to choose from if the user is choosing them.
    pub fn images(&self, ids: &[i64], is_picking: bool, input: &ComposerInput) -> AccountImages {
        let own = self.chosen.in_field(ids);
        if !is_picking {
            return AccountImages::Own(own);
        }
        let of_post: Vec<i64> = input.media.iter().copied().filter(|id| !ids.contains(id)).collect();
        let mut others = self.chosen.of(&of_post);
        others.extend(self.library_without(&[ids, &of_post].concat()));
        AccountImages::Picking { own, others }
    }
}
