// Package forecaststate keeps what was learned of the node's usage (pkg/decide/predict) in the state
// folder, over a restart of the plugin. It is worth no more than days of learning: whoever loses it
// begins anew.
package forecaststate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
)

// File is the name of the file in the state folder.
const File = "forecast"

// maxFile bounds the file in bytes: twice what a full set takes.
const maxFile = 8 << 20

// Read returns what an earlier run has saved in a state folder; nil if there is nothing. The
// methods are configured later.
func Read(stateDir string) (*predict.Set, error) {
	name := filepath.Join(stateDir, File)
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	set, err := predict.Decode(predict.DefaultConfig(), data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return set, nil
}

// Write replaces what is saved in a state folder as a whole.
func Write(stateDir string, data []byte) error {
	name := filepath.Join(stateDir, File)
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
