package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// usualConfig is where the installation puts the configuration.
const usualConfig = "/etc/sluice/sluice.yaml"

// configFile is the file that the flag names, else the usual one, where it is there.
func configFile(flag, hostRoot string) string {
	if flag != "" {
		return flag
	}
	usual := filepath.Join(hostRoot, usualConfig)
	if _, err := os.Stat(usual); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return usual
}

// stateFolder is the folder that the flag names, else the configuration's.
func stateFolder(flag, config, hostRoot string) (string, error) {
	if flag != "" && config == "" {
		return flag, nil
	}
	cfg, err := loadConfig(configFile(config, hostRoot))
	if err != nil {
		return "", fmt.Errorf("%w; --state-dir without --config works as well", err)
	}
	return cmp.Or(flag, cfg.StateDir), nil
}

// absent is what a text about a folder ends with, where there is none.
func absent(folder string) string {
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return ", which is not there: the plugin has not run, or keeps its state elsewhere"
	}
	return ""
}
