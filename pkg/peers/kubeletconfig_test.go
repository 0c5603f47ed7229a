package peers

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
)

func TestFlag(t *testing.T) {
	t.Parallel()
	k := Kubelet{Args: strings.Fields("kubelet --config /a --v=2 --configmap=x --cpu-manager-policy=none --cpu-manager-policy=static --feature-gates=MemoryQoS=true,X=no,=true --cpu-cfs-quota=false --last")}
	for name, want := range map[string]string{"config": "/a", "v": "2", "cpu-manager-policy": "static", "absent": "", "last": ""} {
		if got, ok := k.Flag(name); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
	c := KubeletConfig{CPUManagerPolicy: "none", MemoryManagerPolicy: "Static"}
	c.override(&k)
	if c.CPUManagerPolicy != "static" || c.MemoryManagerPolicy != "Static" || !c.FeatureGates["MemoryQoS"] || *c.CPUCFSQuota {
		t.Errorf("%+v", c)
	}
}

// TestConfigOrder checks that a kubelet's drop-in files override its file in their order, and that its flags
// override both.
func TestConfigOrder(t *testing.T) {
	t.Parallel()
	host := files(map[string]string{
		"etc/k.yaml":       "cpuManagerPolicy: none\nreservedSystemCPUs: 0-1\ncpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\nkubeReserved: {cpu: 500m}\n",
		"etc/d/10.conf":    "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\ncpuManagerPolicyOptions: {strict-cpu-reservation: true}\n",
		"etc/d/20.conf":    "reservedSystemCPUs: 0-3\ntopologyManagerPolicy: restricted\n",
		"etc/d/30.yaml":    "cpuManagerPolicy: none\n",
		"etc/bad/9.conf":   "cpuManagerPolicy: [\n",
		"etc/none/.hidden": "",
	})
	const full = "map[full-pcpus-only:true]"
	for args, test := range map[string]struct{ want, bad string }{
		"--config=/etc/k.yaml --config-dir=/etc/d":                                                      {"static 0-3 restricted map[full-pcpus-only:true strict-cpu-reservation:true] map[cpu:500m]", ""},
		"--config=/etc/k.yaml --config-dir=/etc/d --reserved-cpus=7 --cpu-manager-policy-options=a=b,c": {"static 7 restricted map[a:b] map[cpu:500m]", ""},
		"--config=/etc/k.yaml --kube-reserved=cpu=1,memory=1Gi":                                         {"none 0-1  " + full + " map[cpu:1 memory:1Gi]", ""},
		"--config=/etc/k.yaml --config-dir=/etc/bad":                                                    {"none 0-1  " + full + " map[cpu:500m]", "/etc/bad/9.conf"},
		"--config=/etc/k.yaml --config-dir=/etc/absent":                                                 {"none 0-1  " + full + " map[cpu:500m]", "etc/absent"},
		"--config=/etc/absent":                                                                          {"   map[] map[]", "etc/absent"},
		"":                                                                                              {"   map[] map[]", ""},
	} {
		k := Kubelet{Args: strings.Fields("kubelet " + args), Root: "var/lib/kubelet"}
		c, err := k.Config(host)
		got := fmt.Sprintf("%s %s %s %v %v", c.CPUManagerPolicy, c.ReservedSystemCPUs, c.TopologyManagerPolicy, c.CPUManagerPolicyOptions, c.KubeReserved)
		if got != test.want || (err != nil) != (test.bad != "") || err != nil && !strings.Contains(err.Error(), test.bad) {
			t.Errorf("%s:\n%s, %v, want\n%s, %q", args, got, err, test.want, test.bad)
		}
	}
}

// FuzzKubeletConfig checks that a flag decides over whatever the files have.
func FuzzKubeletConfig(f *testing.F) {
	f.Add("cpuManagerPolicy: static\nfeatureGates: {MemoryQoS: true}\n", "cpuManagerPolicyOptions: {full-pcpus-only: true}\n", "full-pcpus-only=true")
	f.Add("reservedMemory: [{numaNode: 0}]\n", "kubeReserved: 3\n", "=,a,b=")
	f.Fuzz(func(t *testing.T, file, dropIn, options string) {
		host := fstest.MapFS{"c": {Data: []byte(file)}, "d/1.conf": {Data: []byte(dropIn)}}
		k := Kubelet{Args: []string{"kubelet", "--config=/c", "--config-dir=/d", "--cpu-manager-policy=none", "--cpu-manager-policy-options=" + options}}
		c, err := k.Config(host)
		if c.CPUManagerPolicy != "none" || c.File != "/c" || !maps.Equal(c.CPUManagerPolicyOptions, maps.Collect(pairs(options))) {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
