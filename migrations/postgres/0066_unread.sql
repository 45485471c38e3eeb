-- Counts what is unread, for every page of the console, without a walk through the whole inbox.
create index conversations_unread on conversations (brand_id) where unread_count > 0 and status <> 'spam';
