-- An endpoint's owner may have a sample sent to it: an event that happened in no brand.
alter table events add column of_brand bigint;
update events set of_brand = brand_id;
alter table events drop column brand_id;
alter table events rename column of_brand to brand_id;
