-- The person who wrote a message, and the person whose change an event describes.
ALTER TABLE messages ADD COLUMN author TEXT;
ALTER TABLE events ADD COLUMN author TEXT;
