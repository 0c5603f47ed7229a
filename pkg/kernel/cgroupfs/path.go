package cgroupfs

import (
	"fmt"
	"path"
	"strings"
)

// maxPath is the kernel's PATH_MAX: no cgroup has a longer path.
const maxPath = 4096

// ContainerPath returns the cgroup that an OCI spec's linux.cgroupsPath names, relative to each
// controller's root. With the cgroupfs driver it is the path itself
// ("/kubepods/burstable/pod<uid>/<id>"). With the systemd driver, "slice:prefix:name" is the
// scope prefix-name.scope (or the slice, if name is one) in the slice's folder. See runc's
// docs/systemd.md and getUnitName in opencontainers/cgroups. crun's "slice:name" is name.scope.
func ContainerPath(cgroupsPath string) (string, error) {
	slice, unit, systemd := strings.Cut(cgroupsPath, ":")
	if !systemd || slice != "" && !strings.HasSuffix(slice, ".slice") {
		dir, err := absolute("cgroupsPath", cgroupsPath)
		if err == nil && dir == "/" {
			err = fmt.Errorf("cgroupsPath %q is the root of the cgroup tree, which is no container's", cgroupsPath)
		}
		if err != nil {
			return "", err
		}
		return dir, nil
	}
	if slice == "" {
		slice = "system.slice" // as runc does for a rootful container
	}
	parent, err := expandSlice(path.Base(slice))
	if err != nil {
		return "", fmt.Errorf("cgroupsPath %.200q: %w", cgroupsPath, err)
	}
	prefix, name, prefixed := strings.Cut(unit, ":")
	if !prefixed {
		name = prefix
	}
	if name == "" || strings.ContainsAny(unit, "/") || strings.Contains(name, ":") {
		return "", fmt.Errorf("cgroupsPath %.200q: a systemd path is slice:prefix:name, with a name and without \"/\" in it", cgroupsPath)
	}
	switch {
	case strings.HasSuffix(name, ".slice"):
	case prefixed:
		name = prefix + "-" + name + ".scope"
	default:
		name += ".scope"
	}
	return absolute("cgroupsPath", path.Join(parent, name))
}

// PodPath returns the cgroup that a pod's cgroup parent names, relative to each controller's
// root. The parent is a path, or a systemd slice, either by its name alone
// ("kubepods-burstable-pod<uid>.slice") or at the end of a path. The root slice "-.slice" is
// "/".
func PodPath(cgroupParent string) (string, error) {
	if !strings.HasSuffix(cgroupParent, ".slice") {
		return absolute("cgroup parent", cgroupParent)
	}
	dir, err := expandSlice(path.Base(cgroupParent))
	if err != nil {
		return "", fmt.Errorf("cgroup parent %.200q: %w", cgroupParent, err)
	}
	return absolute("cgroup parent", dir)
}

// expandSlice returns a slice's folder. Each "-" in its name is a level, so that "a-b.slice" is
// /a.slice/a-b.slice; "-.slice" is the root (systemd.slice(5)).
func expandSlice(slice string) (string, error) {
	name, ok := strings.CutSuffix(slice, ".slice")
	if !ok {
		return "", fmt.Errorf("%.200q is not a slice: its name must end with .slice", slice)
	}
	if name == "-" {
		return "/", nil
	}
	var dir strings.Builder
	for end, c := range name + "-" {
		if c != '-' {
			continue
		}
		if end == 0 || name[end-1] == '-' {
			return "", fmt.Errorf("%.200q is not a slice: a part of its name is empty", slice)
		}
		dir.WriteString("/" + name[:end] + ".slice")
		if dir.Len() > maxPath {
			return "", fmt.Errorf("slice %.200q nests deeper than the kernel's limit of %d bytes for a path", slice, maxPath)
		}
	}
	return dir.String(), nil
}

// absolute returns a cleaned absolute path that can't leave the tree.
func absolute(what, dir string) (string, error) {
	if !strings.HasPrefix(dir, "/") {
		return "", fmt.Errorf("%s %.200q is neither an absolute path nor a systemd slice: where it lies depends on the runtime's own cgroup; set the pod's cgroup parent", what, dir)
	}
	if len(dir) > maxPath {
		return "", fmt.Errorf("%s %.200q... is longer than the kernel's limit of %d bytes", what, dir, maxPath)
	}
	for i := range len(dir) {
		if dir[i] < ' ' || dir[i] == 0x7f {
			return "", fmt.Errorf("%s %.200q has a control character in it", what, dir)
		}
	}
	for part := range strings.SplitSeq(dir, "/") {
		if part == "." || part == ".." {
			return "", fmt.Errorf("%s %.200q: %q is not allowed in it", what, dir, part)
		}
	}
	return path.Clean(dir), nil
}
