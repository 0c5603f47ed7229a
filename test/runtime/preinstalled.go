package runtime

import (
	"errors"
	"os"
	"path/filepath"
)

// Preinstall makes folders of pre-installed plugins and their configurations in dir. They contain
// sluice with that index and configuration, which the runtime starts by itself.
func (o Options) Preinstall(dir, index, config string) (Options, error) {
	tools, err := o.tools()
	if err != nil {
		return o, err
	}
	o.PluginDir, o.PluginConfigDir = filepath.Join(dir, "plugins"), filepath.Join(dir, "conf.d")
	return o, errors.Join(
		os.Mkdir(o.PluginDir, 0o700),
		os.Mkdir(o.PluginConfigDir, 0o700),
		os.Symlink(tools.sluice(), filepath.Join(o.PluginDir, index+"-sluice")),
		os.WriteFile(filepath.Join(o.PluginConfigDir, "sluice.conf"), []byte(config), 0o600),
	)
}
