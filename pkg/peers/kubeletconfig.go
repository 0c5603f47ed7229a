package peers

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/safeyaml"
)

// KubeletConfig has the fields of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that
// affect Sluice.
type KubeletConfig struct {
	File string `yaml:"-"` // path of the file on the host; "" if the kubelet has its flags alone

	CPUManagerPolicy        string            `yaml:"cpuManagerPolicy"`
	CPUManagerPolicyOptions map[string]string `yaml:"cpuManagerPolicyOptions"`
	ReservedSystemCPUs      string            `yaml:"reservedSystemCPUs"`
	KubeReserved            map[string]string `yaml:"kubeReserved"`
	SystemReserved          map[string]string `yaml:"systemReserved"`
	MemoryManagerPolicy     string            `yaml:"memoryManagerPolicy"`
	ReservedMemory          []any             `yaml:"reservedMemory"`
	TopologyManagerPolicy   string            `yaml:"topologyManagerPolicy"`
	CgroupDriver            string            `yaml:"cgroupDriver"`
	CPUCFSQuota             *bool             `yaml:"cpuCFSQuota"`
	FeatureGates            map[string]bool   `yaml:"featureGates"`
	MemorySwap              struct {
		SwapBehavior string `yaml:"swapBehavior"`
	} `yaml:"memorySwap"`
}

// From names the source of the configuration.
func (c *KubeletConfig) From() string {
	if c.File == "" {
		return "its flags"
	}
	return c.File
}

// Config reads the configuration of the kubelet below the host's root folder: its file, the files
// of its drop-in folder, and its flags, each of which overrides those before. What could be read is
// returned together with the error about what could not.
func (k *Kubelet) Config(host fs.FS) (KubeletConfig, error) {
	var c KubeletConfig
	usual := "/" + k.File("config.yaml")
	file, given := k.Flag("config")
	if !given {
		file = usual
	}
	text, err := fs.ReadFile(host, hostPath(file))
	if err == nil {
		c, err = parseKubeletConfig(text)
		c.File = file
	} else if file == usual {
		err = nil
	}
	if dir, ok := k.Flag("config-dir"); ok {
		err = errors.Join(err, c.dropIn(host, hostPath(dir)))
	}
	c.override(k)
	return c, err
}

func parseKubeletConfig(text []byte) (c KubeletConfig, err error) {
	err = safeyaml.Unmarshal(text, &c)
	return c, err
}

// dropIn applies the files of a drop-in folder in the order of their paths, as
// mergeKubeletConfigurations in Kubernetes' cmd/kubelet/app/server.go does.
func (c *KubeletConfig) dropIn(host fs.FS, dir string) error {
	return fs.WalkDir(host, dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".conf" {
			return err
		}
		text, err := fs.ReadFile(host, name)
		if err == nil {
			err = safeyaml.Unmarshal(text, c)
		}
		if err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
		return nil
	})
}

// override applies the kubelet's flags, which take precedence over its files.
func (c *KubeletConfig) override(running *Kubelet) {
	for name, field := range map[string]*string{
		"cpu-manager-policy": &c.CPUManagerPolicy, "memory-manager-policy": &c.MemoryManagerPolicy, "reserved-cpus": &c.ReservedSystemCPUs,
		"topology-manager-policy": &c.TopologyManagerPolicy, "cgroup-driver": &c.CgroupDriver,
	} {
		if value, ok := running.Flag(name); ok {
			*field = value
		}
	}
	for name, field := range map[string]*map[string]string{
		"cpu-manager-policy-options": &c.CPUManagerPolicyOptions, "kube-reserved": &c.KubeReserved, "system-reserved": &c.SystemReserved,
	} {
		if value, ok := running.Flag(name); ok {
			*field = maps.Collect(pairs(value))
		}
	}
	if value, ok := running.Flag("cpu-cfs-quota"); ok {
		on := value != "false"
		c.CPUCFSQuota = &on
	}
	gates, _ := running.Flag("feature-gates")
	for name, value := range pairs(gates) {
		if on, err := strconv.ParseBool(value); err == nil {
			if c.FeatureGates == nil {
				c.FeatureGates = map[string]bool{}
			}
			c.FeatureGates[name] = on
		}
	}
}

// pairs yields the pairs of a flag: "name=value,name=value".
func pairs(text string) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		for pair := range strings.SplitSeq(text, ",") {
			name, value, found := strings.Cut(pair, "=")
			if found && !yield(strings.TrimSpace(name), strings.TrimSpace(value)) {
				return
			}
		}
	}
}
