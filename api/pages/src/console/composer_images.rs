//! The images in the composer: those of the post, of an account and of a part of the thread.

use std::collections::{BTreeSet, HashMap};

use crier_endpoints::error::Result;
use crier_store::{Conn, media};

use super::composer_input::{AccountOverride, ComposerInput};
use super::post_rows::image;
use super::shared::Image;
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

/// The chosen images of the post and of its accounts, by ID.
pub struct Chosen(HashMap<i64, Image>);

impl Chosen {
    pub async fn load(visit: &Visit, conn: &mut Conn, input: &ComposerInput) -> Result<Self> {
        let own = input.overrides.iter().filter_map(|account_override| account_override.media.as_ref()).flatten();
        let cards = input.overrides.iter().filter_map(|own| own.link_card_field("media_id").parse::<i64>().ok());
        let parts = input.thread.iter().flat_map(|part| &part.media);
        // All of them, because an image that is not loaded is not in the form, and would be removed from the post.
        let ids: BTreeSet<i64> = input.media.iter().chain(own).chain(parts).copied().chain(cards).collect();
        let ids: Vec<i64> = ids.into_iter().collect();
        let found = media::find_many(conn, visit.brand()?.0.id, &ids).await?;
        Ok(Self(found.into_iter().map(|asset| (asset.id, image(visit, asset))).collect()))
    }

    /// Returns the images with these IDs, in order. Deleted images are omitted.
    pub fn of(&self, ids: &[i64]) -> Vec<Image> {
        ids.iter().filter_map(|id| self.0.get(id).cloned()).collect()
    }
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
        let own = self.chosen.of(ids);
        if !is_picking {
            return AccountImages::Own(own);
        }
        let of_post: Vec<i64> = input.media.iter().copied().filter(|id| !ids.contains(id)).collect();
        let mut others = self.chosen.of(&of_post);
        others.extend(self.library_without(&[ids, &of_post].concat()));
        AccountImages::Picking { own, others }
    }
}
