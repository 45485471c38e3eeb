//! The images of a post: selecting them, converting them for the platform, and uploading them before the call. Also the
//! covers of videos.
//!
//! The platform's name of an image is stored before the next image is uploaded, so that a retry, or another worker,
//! continues where the last one stopped. An upload publishes nothing, so its failure never leaves an unknown outcome.
//!
//! One image at a time is in memory, or all images of a post if they are part of the publish call, and the covers of
//! its videos, always within the library's memory budget. The platform may be slow, so these images use only a part
//! of it, and a run that waits for memory holds no slot. A run acquires all its memory in one step, which prevents
//! deadlocks.

use std::time::Duration;

use crier_domain::failure::{Category, Failure};
use crier_domain::media::{Asset, ImageType};
use crier_domain::platform::MediaRules;
use crier_media::budget::MemoryPermit;
use crier_media::images::FittedImage;
use crier_media::rendition::{RenditionError, estimate_conversion_bytes, estimate_output_bytes};
use crier_platforms::text::cut::at_word;
use crier_platforms::{CallError, Image, ImageTransfer, UploadedImage};
use crier_store::{Result as StoreResult, Tx, post_media};
use serde_json::{Map, Value};

use super::super::account_session::unknown_to_transient;
use super::videos::{needs_cover, progress};
use super::{OutgoingPart, PublishCall, Publisher, Step, SubjectKind};
use crate::engine::Run;

/// The key in the stored names that is not the id of an asset: the number of the attempt that has uploaded everything
/// again.
const UPLOADED_AGAIN_IN: &str = "uploaded_again_in";

/// Returns whether an earlier run of this attempt has uploaded everything again, because the platform had lost the
/// uploads.
pub(in crate::jobs) fn has_uploaded_again(uploads: &Map<String, Value>, attempt: i32) -> bool {
    uploads.get(UPLOADED_AGAIN_IN).and_then(Value::as_i64) == Some(i64::from(attempt))
}

/// Returns the images and videos in the order of `ids`. Fails if one was deleted.
pub(in crate::jobs) fn in_order(found: &[Asset], ids: &[i64]) -> Result<Vec<Asset>, Failure> {
    // A video without its properties, which every video has, is not published as something else.
    let is_usable = |asset: &&Asset| asset.mime_type.video().is_some() == asset.video.is_some();
    let find = |id: &i64| found.iter().find(|asset| asset.id == *id).filter(is_usable).cloned();
    ids.iter().map(|id| find(id).ok_or_else(|| deleted(*id))).collect()
}

fn deleted(id: i64) -> Failure {
    Failure::with_code(
        Category::InvalidContent,
        "media_deleted",
        format!("Media asset {id} is no longer in the media library. Choose another one, then publish the post again."),
    )
}

/// Returns whether the bytes of an image must be loaded, for an upload before the call or for the call itself.
pub(in crate::jobs) fn needs_bytes(transfer: ImageTransfer, image: &Image) -> bool {
    match transfer {
        ImageTransfer::Uploaded => image.uploaded.is_none(),
        ImageTransfer::Inline => image.bytes.is_empty(),
        ImageTransfer::Fetched => false,
    }
}

/// Returns an image without its bytes, with the URL from which the platform may download it. Its alt text is cut to the
/// platform's maximum length.
pub(in crate::jobs) fn image(asset: &Asset, url: String, uploads: &Map<String, Value>, rules: &MediaRules) -> Image {
    let uploaded = uploads.get(&asset.id.to_string());
    Image {
        id: asset.id,
        bytes: Default::default(),
        mime_type: asset.mime_type.to_string(),
        filename: asset.filename.clone(),
        alt_text: alt_text(asset, rules),
        width: asset.width.unsigned_abs(),
        height: asset.height.unsigned_abs(),
        url,
        uploaded: uploaded.map(|name| UploadedImage { name: name.clone(), uploaded_in_this_run: false }),
    }
}

/// Returns the alt text of an asset, cut to the platform's maximum length.
pub(super) fn alt_text(asset: &Asset, rules: &MediaRules) -> Option<String> {
    let max = rules.max_alt_text.map_or(usize::MAX, |max| max as usize);
    asset.alt_text.as_deref().map(|alt| at_word(alt, max).into_owned())
}

impl Publisher {
    /// Transfers the images in the way that the platform requires, and loads those that are part of a later call.
    pub(super) async fn prepare_images(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        if p.session.connector.image_transfer() == ImageTransfer::Uploaded {
            self.upload_all(run, p).await?;
        }
        self.load_all(run, p).await
    }

    /// Transfers the images and videos again, also the image of the link card, after the platform reported that the
    /// uploads no longer exist, and waits until the platform has processed them. The platform rejected that call, so no
    /// call is open meanwhile: a process that dies during the uploads leaves no unknown outcome.
    pub(super) async fn upload_again(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        for part in &mut p.parts {
            part.post.images.iter_mut().for_each(|image| image.uploaded = None);
            for video in &mut part.post.videos {
                video.uploaded = None;
                video.upload.clear();
            }
        }
        release_memory(p);
        p.videos_began_at = None;
        p.has_uploaded_again = true;
        let mut tx = self.begin_held(run).await?;
        if p.subject.kind != SubjectKind::FirstComment {
            self.write_uploads(&mut tx, p).await?;
        }
        p.subject.clear_call(&mut tx).await?;
        tx.commit().await?;
        self.prepare_images(run, p).await?;
        self.send_videos(run, p).await?;
        self.prepare_cards(run, p).await?;
        self.stage(run, p).await
    }

    /// Forgets the uploads of images that the platform cannot use, so that the next attempt uploads them again.
    pub(super) async fn forget_images(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        let mut is_changed = false;
        for image in p.parts.iter_mut().flat_map(|part| &mut part.post.images) {
            is_changed |= image.uploaded.take().is_some();
        }
        if is_changed { self.store_uploads(run, p).await } else { Ok(()) }
    }

    async fn upload_all(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        for place in places(p) {
            if image_at(p, place).uploaded.is_some() {
                continue;
            }
            let (asset, rules) = (asset_at(p, place), rules_of(p));
            let (conversion, output) = (estimate_conversion_bytes(asset, &rules), estimate_output_bytes(asset, &rules));
            let mut permit = self.reserve_memory(run, p, conversion, output).await;
            let image = self.load(p, asset_at(p, place), image_at(p, place)).await?;
            permit.shrink_to(image.bytes.len() as u64);
            let name = self.upload(run, p, &image).await?;
            image_at_mut(p, place).uploaded = Some(UploadedImage { name, uploaded_in_this_run: true });
            self.store_uploads(run, p).await?;
        }
        Ok(())
    }

    /// Waits for memory, of which `held` bytes are held until the platform has responded.
    async fn reserve_memory(&self, run: &Run, p: &PublishCall, bytes: u64, held: u64) -> MemoryPermit {
        let memory = self.library.budget().share_of_workspace(p.session.account.workspace_id, bytes, held);
        run.wait_without_slot(memory).await
    }

    /// Uploads one image.
    async fn upload(&self, run: &Run, p: &mut PublishCall, image: &Image) -> Step<Value> {
        // An upload may be several requests, each with the platform's timeout, like a publish.
        let deadline = self.timeout.to_std().unwrap_or_default();
        let uploaded = self.try_upload(run, p, image, deadline).await?;
        uploaded.map_err(|error| self.fail(p, unknown_to_transient(error)))
    }

    /// Uploads one image. Refreshes an expired access token once. Stops only if the refresh fails.
    pub(super) async fn try_upload(
        &self,
        run: &Run,
        p: &mut PublishCall,
        image: &Image,
        deadline: Duration,
    ) -> Step<Result<Value, CallError>> {
        let mut uploaded = self.upload_once(run, p, image, deadline).await;
        if let Err(CallError::AuthExpired(failure)) = uploaded {
            self.refresh(run, p, failure).await?;
            uploaded = self.upload_once(run, p, image, deadline).await;
        }
        Ok(uploaded)
    }

    async fn upload_once(
        &self,
        run: &Run,
        p: &PublishCall,
        image: &Image,
        deadline: Duration,
    ) -> Result<Value, CallError> {
        let upload = p.session.connector.upload(&p.session.connector_account, p.post(), image);
        match run.wait_without_slot(tokio::time::timeout(deadline, upload)).await {
            Ok(result) => result,
            Err(_) => Err(CallError::network("The platform did not accept an image in time.")),
        }
    }

    /// Stores the platform's names of the images and videos, and the progress of videos.
    pub(super) async fn store_uploads(&self, run: &Run, p: &PublishCall) -> Step<()> {
        if p.subject.kind == SubjectKind::FirstComment {
            return Ok(());
        }
        let mut tx = self.begin_held(run).await?;
        self.write_uploads(&mut tx, p).await?;
        Ok(tx.commit().await?)
    }

    /// Does what [`Publisher::store_uploads`] does, in the caller's transaction.
    pub(super) async fn write_uploads(&self, tx: &mut Tx, p: &PublishCall) -> StoreResult<()> {
        let images = p.parts.iter().flat_map(|part| &part.post.images);
        let images = images.filter_map(|image| Some((image.id, image.uploaded.as_ref()?.name.clone())));
        let videos = p.parts.iter().flat_map(|part| &part.post.videos);
        let videos = videos.filter_map(|video| Some((video.id, video.uploaded.clone()?)));
        let mut named: Map<String, Value> = images.chain(videos).map(|(id, name)| (id.to_string(), name)).collect();
        if p.has_uploaded_again {
            named.insert(UPLOADED_AGAIN_IN.to_owned(), Value::from(p.subject.attempts));
        }
        post_media::set_uploads(tx, p.subject.target_id, &named).await?;
        if p.parts.iter().any(|part| !part.post.videos.is_empty()) {
            post_media::set_video_uploads(tx, self.store.cipher(), p.subject.target_id, &progress(p)).await?;
        }
        Ok(())
    }

    /// Loads the bytes of all images that are part of the call, and of covers. Their memory permit is held until the
    /// run ends.
    async fn load_all(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        let (rules, images, covers) = (rules_of(p), unloaded_places(p), unloaded_covers(p));
        let covers_of = |part: &usize| p.parts[*part].cover.as_ref();
        let assets: Vec<&Asset> =
            images.iter().map(|place| asset_at(p, *place)).chain(covers.iter().filter_map(covers_of)).collect();
        let output: u64 = assets.iter().map(|asset| estimate_output_bytes(asset, &rules)).sum();
        let conversion = assets.iter().map(|asset| estimate_conversion_bytes(asset, &rules)).max().unwrap_or_default();
        if conversion == 0 {
            return Ok(());
        }
        let mut permit = self.reserve_memory(run, p, output + conversion, output).await;
        let mut loaded = 0;
        for place in images {
            let image = self.load(p, asset_at(p, place), image_at(p, place)).await?;
            loaded += image.bytes.len() as u64;
            *image_at_mut(p, place) = image;
        }
        for part in covers {
            let cover = p.parts[part].cover.as_ref().zip(cover_of(&p.parts[part]));
            let Some((asset, image)) = cover else { continue };
            let image = self.load(p, asset, image).await?;
            loaded += image.bytes.len() as u64;
            if let Some(video) = p.parts[part].post.videos.first_mut() {
                video.cover = Some(image);
            }
        }
        permit.shrink_to(loaded);
        p.memory = Some(permit);
        Ok(())
    }

    /// Returns an image with its bytes, converted for the platform.
    async fn load(&self, p: &PublishCall, asset: &Asset, image: &Image) -> Step<Image> {
        let Some(kind) = asset.mime_type.image() else {
            return Err(self.fail(p, CallError::Permanent(deleted(asset.id))));
        };
        let error = match self.library.render(&asset.key, kind, &rules_of(p)).await {
            Ok(fitted) => return Ok(with_bytes(image, fitted)),
            Err(error) => error,
        };
        let transient = |category, message| CallError::Transient(Failure::of(category, message));
        let failure = match error {
            RenditionError::Missing => CallError::Permanent(deleted(asset.id)),
            RenditionError::Storage(error) => {
                tracing::warn!(%error, media = asset.id, "failed to load an image");
                let message = "An image of the post cannot be loaded: the file storage does not respond.";
                transient(Category::Media, message)
            }
            RenditionError::Rejected(rejection) => CallError::Permanent(Failure::with_code(
                Category::InvalidContent,
                "image_unfit",
                format!("Image {} cannot be adapted to this platform: {rejection}", asset.id),
            )),
            RenditionError::Failed => transient(Category::Internal, "An image of the post could not be processed."),
        };
        Err(self.fail(p, failure))
    }
}

/// Drops the images and covers that are in memory, which are loaded again, and their permit. A run that holds a part of
/// its workspace's memory and waits for another one could wait for itself.
fn release_memory(p: &mut PublishCall) {
    for part in &mut p.parts {
        let covers = part.post.videos.iter_mut().filter_map(|video| video.cover.as_mut());
        part.post.images.iter_mut().chain(covers).for_each(|image| image.bytes.clear());
    }
    p.memory = None;
}

/// The place of an image: the index of its part, and its index there.
type Place = (usize, usize);

fn places(p: &PublishCall) -> Vec<Place> {
    let of_part = |(part, outgoing): (usize, &OutgoingPart)| (0..outgoing.assets.len()).map(move |image| (part, image));
    p.parts.iter().enumerate().flat_map(of_part).collect()
}

/// Returns the places of the images that are part of the call and have no bytes yet.
fn unloaded_places(p: &PublishCall) -> Vec<Place> {
    let transfer = p.session.connector.image_transfer();
    let is_unloaded = |place: &Place| transfer == ImageTransfer::Inline && needs_bytes(transfer, image_at(p, *place));
    places(p).into_iter().filter(is_unloaded).collect()
}

/// Returns the parts whose first video has a cover without bytes.
fn unloaded_covers(p: &PublishCall) -> Vec<usize> {
    let transfer = p.session.connector.video_transfer();
    let is_unloaded = |part: &usize| p.parts[*part].post.videos.first().is_some_and(|v| needs_cover(transfer, v));
    (0..p.parts.len()).filter(is_unloaded).collect()
}

fn cover_of(part: &OutgoingPart) -> Option<&Image> {
    part.post.videos.first()?.cover.as_ref()
}

fn asset_at(p: &PublishCall, (part, image): Place) -> &Asset {
    &p.parts[part].assets[image]
}

fn image_at(p: &PublishCall, (part, image): Place) -> &Image {
    &p.parts[part].post.images[image]
}

fn image_at_mut(p: &mut PublishCall, (part, image): Place) -> &mut Image {
    &mut p.parts[part].post.images[image]
}

pub(super) fn rules_of(p: &PublishCall) -> MediaRules {
    p.session.descriptor().into_owned().capabilities.media
}

fn with_bytes(image: &Image, fitted: FittedImage) -> Image {
    Image {
        bytes: fitted.bytes,
        mime_type: fitted.kind.to_string(),
        filename: with_extension(&image.filename, fitted.kind),
        ..image.clone()
    }
}

/// Returns the file name with the extension for the image type.
fn with_extension(filename: &str, kind: ImageType) -> String {
    let (stem, extension) = filename.rsplit_once('.').unwrap_or((filename, ""));
    let matches = extension == kind.extension() || kind == ImageType::Jpeg && extension.eq_ignore_ascii_case("jpeg");
    if matches { filename.to_owned() } else { format!("{stem}.{}", kind.extension()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_converted_image_has_the_extension_of_its_type() {
        for (name, kind, expected) in [
            ("cat.gif", ImageType::Jpeg, "cat.jpg"),
            ("cat.jpeg", ImageType::Jpeg, "cat.jpeg"),
            ("cat.png", ImageType::Png, "cat.png"),
            ("my.cat", ImageType::Png, "my.png"),
            ("cat", ImageType::Webp, "cat.webp"),
        ] {
            assert_eq!(with_extension(name, kind), expected);
        }
    }
}
