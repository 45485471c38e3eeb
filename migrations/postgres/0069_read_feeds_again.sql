-- A feed that answers 304 is not parsed again: the next fetch is without conditions, so that it is parsed by this release.
update feeds set validator_url = null, etag = null, last_modified = null where validator_url is not null;
