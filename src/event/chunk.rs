pub const ASSISTANT_CHUNK: &str = "assistant/chunk";
