-- Mails that are sent or failed are deleted after a time.
create index mails_ended on mails (created_at) where status <> 'pending';
