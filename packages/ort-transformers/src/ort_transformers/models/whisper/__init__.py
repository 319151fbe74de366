"""Whisper: an encoder of sound, a decoder of one token at a time, and both in one WhisperBeamSearch."""
