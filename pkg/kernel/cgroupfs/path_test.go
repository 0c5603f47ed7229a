package cgroupfs

import (
	"path"
	"strings"
	"testing"
)

const uid = "c7b2c5f5_4f52_4d3b_a0f1_1f4f0d2b7a11"

func TestContainerPath(t *testing.T) {
	t.Parallel()
	burstable := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid + ".slice"
	tests := []struct{ in, want string }{
		{"/kubepods/burstable/pod12-34/abc", "/kubepods/burstable/pod12-34/abc"},
		{"/kubepods//pod1/abc/", "/kubepods/pod1/abc"},
		{"/kubepods/pod1/a:b", "/kubepods/pod1/a:b"},
		{"/k8s.io/abc", "/k8s.io/abc"},
		{"kubepods-burstable-pod" + uid + ".slice:cri-containerd:abc", burstable + "/cri-containerd-abc.scope"},
		{"kubepods-burstable-pod" + uid + ".slice:crio:abc", burstable + "/crio-abc.scope"},
		{burstable + ":crio:abc", burstable + "/crio-abc.scope"},
		{"a.slice:abc", "/a.slice/abc.scope"},
		{"a.slice::abc", "/a.slice/-abc.scope"},
		{"a.slice:x:b.slice", "/a.slice/b.slice"},
		{"-.slice:x:abc", "/x-abc.scope"},
		{":x:abc", "/system.slice/x-abc.scope"},
	}
	for _, test := range tests {
		got, err := ContainerPath(test.in)
		if err != nil || got != test.want {
			t.Errorf("ContainerPath(%q) = %q, %v; want %q", test.in, got, err, test.want)
		}
	}
}

func TestPodPath(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{"/kubepods/burstable/pod12-34", "/kubepods/burstable/pod12-34"},
		{"/kubepods/pod1/", "/kubepods/pod1"},
		{"/", "/"},
		{"-.slice", "/"},
		{"kubepods.slice", "/kubepods.slice"},
		{"kubepods-pod1.slice", "/kubepods.slice/kubepods-pod1.slice"},
		{"a-b-c.slice", "/a.slice/a-b.slice/a-b-c.slice"},
		{"/a.slice/a-b.slice", "/a.slice/a-b.slice"},
		{"/a-b.slice", "/a.slice/a-b.slice"},
	}
	for _, test := range tests {
		got, err := PodPath(test.in)
		if err != nil || got != test.want {
			t.Errorf("PodPath(%q) = %q, %v; want %q", test.in, got, err, test.want)
		}
	}
}

func TestPathsRefused(t *testing.T) {
	t.Parallel()
	both := []string{
		"", "abc", "kubepods/pod1/abc", "/kubepods/../abc", "/..", "/a/./b", "/a/b\x00", "/a\nb", "/a\x7f",
		"/" + strings.Repeat("a/", maxPath/2),
	}
	slices := []string{".slice", "--.slice", "-a.slice", "a-.slice", "a--b.slice", strings.Repeat("a-", 200) + "a.slice", "a\x00.slice"}
	for _, in := range append(both, slices...) {
		if got, err := PodPath(in); err == nil {
			t.Errorf("PodPath(%.80q) = %q, want an error", in, got)
		}
	}
	containers := []string{
		"/", "//", "a.slice:", "a.slice:x:", "a.slice:x:a:b", "a.slice:x:a/b", "a.slice:../x:b", "a.slice:x:a\x00", "a:x:b",
	}
	for _, slice := range slices {
		containers = append(containers, slice+":x:abc")
	}
	for _, in := range append(both, containers...) {
		if got, err := ContainerPath(in); err == nil {
			t.Errorf("ContainerPath(%.80q) = %q, want an error", in, got)
		}
	}
}

func FuzzContainerPath(f *testing.F) {
	for _, seed := range []string{"/kubepods/pod1/abc", "a-b.slice:crio:abc", "a.slice:abc", "-.slice:x:..", "/a/../b", ":::"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) { checkPath(t, in, ContainerPath, true) })
}

func FuzzPodPath(f *testing.F) {
	for _, seed := range []string{"/kubepods/pod1", "a-b.slice", "-.slice", "/../a.slice", "/a\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) { checkPath(t, in, PodPath, false) })
}

// checkPath checks that a resolved path is clean and absolute, and resolves to itself.
func checkPath(t *testing.T, in string, resolve func(string) (string, error), container bool) {
	got, err := resolve(in)
	if err != nil {
		return
	}
	if !path.IsAbs(got) || path.Clean(got) != got || strings.ContainsAny(got, "\x00\n") || container && got == "/" {
		t.Errorf("%q resolves to %q", in, got)
	}
	for part := range strings.SplitSeq(got, "/") {
		if part == ".." || part == "." {
			t.Errorf("%q resolves to %q", in, got)
		}
	}
	if again, err := PodPath(got); err == nil && !strings.HasSuffix(got, ".slice") && again != got {
		t.Errorf("%q resolves to %q, which resolves to %q", in, got, again)
	}
}
