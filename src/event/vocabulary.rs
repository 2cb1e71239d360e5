pub struct Vocabulary;
