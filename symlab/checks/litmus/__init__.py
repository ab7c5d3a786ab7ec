"""The judge: which final states of a small PTX program the memory model of the PTX ISA (chapter 8) allows."""
