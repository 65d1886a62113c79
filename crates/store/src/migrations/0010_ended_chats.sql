-- That people ended the chat of a launch is told apart from why it was to stop first.
ALTER TABLE launches ADD COLUMN is_chat_over BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE launches SET is_chat_over = TRUE WHERE stop_reason = 'chat_ended';
