-- The start of a publish changes no indexed column: with room on its page it touches no index. Concerns new pages only.
alter table post_targets set (fillfactor = 70);
