package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// UsualFile is the path of the configuration in an installation.
const UsualFile = "/etc/sluice/sluice.yaml"

// FileOr returns the given file; otherwise the usual one below the host's root, or "" if that
// does not exist.
func FileOr(given, hostRoot string) string {
	if given != "" {
		return given
	}
	usual := filepath.Join(hostRoot, UsualFile)
	if _, err := os.Stat(usual); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return usual
}

// Load reads a configuration file, and returns its text, too. Without a file it returns the
// configuration as shipped, which has no text.
func Load(file string) (*Config, []byte, error) {
	if file == "" {
		return Default(), nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	return c, text, nil
}
