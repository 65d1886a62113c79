-- Pages name the person who stopped an agent.
CREATE INDEX events_of_stops ON events (agent_id, project_id, at) WHERE kind = 'person.stop';
