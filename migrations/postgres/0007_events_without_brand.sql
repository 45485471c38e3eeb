-- An endpoint's owner may have a sample sent to it: an event that happened in no brand.
alter table events alter column brand_id drop not null;
