-- From where a person signed in. A process of an older version leaves it null.
alter table sessions add column address text;
