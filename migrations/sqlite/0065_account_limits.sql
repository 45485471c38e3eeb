-- The limits that the account's own server states; null: none was read, or the platform's limits are the same
-- everywhere.
alter table social_accounts add column limits jsonb;
