// Package test checks properties of the whole module.
package test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sluice-dev/sluice"

// storey is a layer of the code: its folders, and the storeys that its packages may import.
type storey struct {
	name    string
	folders []string
	imports []string // names of storeys; a storey may always import itself
}

// storeys lists all storeys, as in docs/design.md.
func storeys() []storey {
	vocabulary := []string{"machine", "words", "vocabulary"}
	model := append(slices.Clone(vocabulary), "decide", "kernel", "runtime, called", "model")
	edges := append(slices.Clone(model), "engine", "cluster")
	return []storey{
		{"words", []string{"pkg/text"}, nil},
		{"machine", []string{"topology"}, []string{"words"}},
		{"vocabulary", []string{"pkg/workload", "pkg/observe", "pkg/knobs", "pkg/peers"}, vocabulary},
		{"decide", []string{"pkg/decide"}, vocabulary},
		{"kernel", []string{"pkg/kernel"}, vocabulary},
		{"runtime, called", []string{"pkg/runtime/evict", "pkg/runtime/inspect", "pkg/runtime/kubelink"}, vocabulary},
		{"model", []string{"pkg/status", "pkg/config"}, append(slices.Clone(vocabulary), "decide", "kernel")},
		{"engine", []string{"pkg/engine"}, model},
		{"runtime, calling", []string{"pkg/runtime/nri"}, edges},
		{"cluster", []string{"pkg/cluster"}, model},
		{"API server", []string{"pkg/kube"}, append(slices.Clone(vocabulary), "model", "cluster")},
		{"edges for people", []string{"pkg/view", "pkg/doctor", "pkg/sim"}, edges},
	}
}

// storeyOf returns the storey of a package.
func storeyOf(pkg string) (storey, bool) {
	all := storeys()
	i := slices.IndexFunc(all, func(s storey) bool { return within(pkg, s.folders) })
	if i < 0 {
		return storey{}, false
	}
	return all[i], true
}

// shell lists the packages of topology and pkg that do I/O. All others are pure: they decide, and
// the shell acts.
func shell() []string {
	return []string{
		"topology/sysfs", "topology/synth", // synth writes its machines and reads them in the same way as sysfs
		"pkg/peers", "pkg/kernel", "pkg/runtime", "pkg/config", "pkg/status", "pkg/engine",
		"pkg/view/kubesocket", "pkg/view/metrics", "pkg/view/statusapi", "pkg/view/web", "pkg/view/whatif", "pkg/view/top/live", "pkg/doctor", "pkg/sim", "pkg/kube",
	}
}

// forbidden lists the standard packages that a pure package must not import. Packages below them
// are forbidden, too.
func forbidden() []string {
	return []string{"os", "syscall", "net", "log", "plugin", "unsafe", "C", "crypto/rand", "math/rand", "internal"}
}

// clock lists the functions of package time that read the clock or wait.
func clock() []string {
	return []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}
}

// owners lists the kernel's trees, as paths below the root, that only one package may name.
func owners() map[string]string {
	return map[string]string{
		"sys/fs/cgroup":                 "pkg/kernel/cgroupfs",
		"sys/fs/resctrl":                "pkg/kernel/resctrl",
		"proc/irq":                      "pkg/kernel/irq",
		"proc/sys/vm/watermark":         "pkg/kernel/watermark",
		"proc/sys/vm/min_free":          "pkg/kernel/watermark",
		"sys/devices/virtual/workqueue": "pkg/kernel/irq",
	}
}

// exempt lists forbidden imports of pure packages with their reasons.
func exempt() map[string][]string {
	return map[string][]string{
		"pkg/workload/annotation": {"gopkg.in/yaml.v3"},               // parses annotation values that are YAML
		"pkg/workload/manifest":   {"gopkg.in/yaml.v3"},               // parses pod manifests
		"pkg/workload/convert":    {"gopkg.in/yaml.v3"},               // edits pod manifests
		"pkg/text/safeyaml":       {"gopkg.in/yaml.v3"},               // wraps the library
		"pkg/decide/predict":      {"gonum.org/v1/gonum/dsp/fourier"}, // pure arithmetic
		"pkg/view/top":            {path.Join(module, "pkg/status")},  // imports it for its types only
		"pkg/cluster/fleet":       {path.Join(module, "pkg/status")},  // imports it for its types only
		"pkg/cluster/selling": { // imports them for their types only
			path.Join(module, "pkg/status"), path.Join(module, "pkg/peers"),
		},
		"pkg/cluster/policy": {path.Join(module, "pkg/status")}, // imports it for its types only
		"pkg/cluster/slices": {path.Join(module, "pkg/status")}, // imports it for its types only
		"pkg/cluster/zones":  {path.Join(module, "pkg/status")}, // imports it for its types only
		"pkg/cluster/overlay": { // merges YAML, and imports the packages for their types and the parser
			"gopkg.in/yaml.v3", path.Join(module, "pkg/status"), path.Join(module, "pkg/config"),
		},
		"pkg/view/migrate": { // imports them for their types, the parser of requests and the question what would be
			path.Join(module, "pkg/status"), path.Join(module, "pkg/config"), path.Join(module, "pkg/peers"),
		},
		"pkg/view/render": { // imports them for the types that it formats
			path.Join(module, "pkg/status"), path.Join(module, "pkg/config"), path.Join(module, "pkg/engine/audit"),
			path.Join(module, "pkg/engine/batchswitch"), path.Join(module, "pkg/doctor"), path.Join(module, "pkg/sim"), path.Join(module, "pkg/sim/tune"), path.Join(module, "pkg/sim/grade"), path.Join(module, "pkg/view/whatif"),
		},
	}
}

// source is one Go file of the product, without tests.
type source struct {
	pkg  string // folder below the module's root
	file *ast.File
}

func sources(t *testing.T, roots ...string) []source {
	t.Helper()
	var all []source
	for _, root := range roots {
		dir := filepath.Join("..", root)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err == nil {
				all = append(all, source{strings.TrimPrefix(filepath.ToSlash(filepath.Dir(name)), "../"), file})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (s source) imports() []string {
	var paths []string
	for _, spec := range s.file.Imports {
		paths = append(paths, literal(spec.Path))
	}
	return paths
}

func literal(lit *ast.BasicLit) string {
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return text
}

func within(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

// impurity says why a pure package must not import the path, or "" if it may.
func impurity(pkg, imported string) string {
	if slices.Contains(exempt()[pkg], imported) {
		return ""
	}
	own, inModule := strings.CutPrefix(imported, module+"/")
	first, _, _ := strings.Cut(imported, "/")
	switch {
	case inModule && (within(own, shell()) || !within(own, []string{"topology", "pkg"})):
		return "it is part of the shell"
	case !inModule && strings.Contains(first, "."):
		return "it comes from another module"
	case within(imported, forbidden()):
		return "it reaches the world outside"
	}
	return ""
}

func TestStoreysImportWhatIsBelowThem(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t, "topology", "pkg") {
		own, ok := storeyOf(s.pkg)
		if !ok {
			t.Errorf("%s is in no storey: enter it in storeys() and in docs/design.md", s.pkg)
			continue
		}
		for _, imported := range s.imports() {
			if why := misplaced(own, imported); why != "" {
				t.Errorf("%s must not import %s: %s", s.pkg, imported, why)
			}
		}
	}
}

// misplaced says why a storey must not import the path, or "" if it may.
func misplaced(own storey, imported string) string {
	pkg, inModule := strings.CutPrefix(imported, module+"/")
	if !inModule {
		return ""
	}
	other, ok := storeyOf(pkg)
	switch {
	case !ok:
		return "it is in no storey that others import"
	case other.name != own.name && !slices.Contains(own.imports, other.name):
		return fmt.Sprintf("%q is not among the storeys that %q imports", other.name, own.name)
	}
	return ""
}

// A folder that was renamed or removed must not stay in a list, where it would protect nothing.
func TestListsNameFoldersThatExist(t *testing.T) {
	t.Parallel()
	names := shell()
	for _, s := range storeys() {
		names = append(names, s.folders...)
	}
	for _, owner := range owners() {
		names = append(names, owner)
	}
	for pkg := range exempt() {
		names = append(names, pkg)
	}
	for _, name := range names {
		if len(sources(t, name)) == 0 {
			t.Errorf("%s is in a list of this test, and has no Go files", name)
		}
	}
}

func TestPurePackagesImportOnlyPureOnes(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t, "topology", "pkg") {
		if within(s.pkg, shell()) {
			continue
		}
		for _, imported := range s.imports() {
			if why := impurity(s.pkg, imported); why != "" {
				t.Errorf("%s is pure and must not import %s: %s", s.pkg, imported, why)
			}
		}
	}
}

func TestPurePackagesHaveNoClock(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t, "topology", "pkg") {
		if within(s.pkg, shell()) {
			continue
		}
		for _, name := range clockUses(s.file) {
			t.Errorf("%s is pure and must not use time.%s: take the time as an argument", s.pkg, name)
		}
	}
}

func clockUses(file *ast.File) []string {
	var uses []string
	for _, spec := range file.Imports {
		if literal(spec.Path) != "time" {
			continue
		}
		alias := "time"
		if spec.Name != nil {
			alias = spec.Name.Name
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := selector.X.(*ast.Ident); ok && x.Name == alias && slices.Contains(clock(), selector.Sel.Name) {
					uses = append(uses, selector.Sel.Name)
				}
			}
			return true
		})
	}
	return uses
}

func TestKernelTreesHaveOneOwner(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t, "topology", "pkg", "plugins") {
		ast.Inspect(s.file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			for tree, owner := range owners() {
				if strings.HasPrefix(strings.TrimPrefix(literal(lit), "/"), tree) && s.pkg != owner {
					t.Errorf("%s names %s: that tree is %s's alone", s.pkg, literal(lit), owner)
				}
			}
			return true
		})
	}
}

// In a clean tree the checks above find nothing. They must find each of these.
func TestTheChecksFind(t *testing.T) {
	t.Parallel()
	for _, imported := range []string{
		"os", "os/exec", "net/http", "syscall", "log/slog", "golang.org/x/sys/unix", "github.com/sirupsen/logrus",
		path.Join(module, "pkg/runtime/nri"), path.Join(module, "topology/sysfs"), path.Join(module, "test/runtime"),
	} {
		if impurity("pkg/decide/placement", imported) == "" {
			t.Errorf("pkg/decide/placement may import %s", imported)
		}
	}
	for _, imported := range []string{"strings", "time", "iter", path.Join(module, "topology/cpuset"), path.Join(module, "pkg/knobs")} {
		if why := impurity("pkg/decide/placement", imported); why != "" {
			t.Errorf("pkg/decide/placement may not import %s: %s", imported, why)
		}
	}
	for pkg, imported := range map[string]string{
		"pkg/kernel/cgroupfs": "pkg/decide/qos", "pkg/decide/qos": "pkg/kernel/cgroupfs", "pkg/engine/agent": "pkg/view/top",
		"pkg/status": "pkg/engine/agent", "pkg/doctor": "plugins/sluice", "topology": "pkg/workload",
	} {
		if own, ok := storeyOf(pkg); !ok || misplaced(own, path.Join(module, imported)) == "" {
			t.Errorf("%s may import %s", pkg, imported)
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p; import clock \"time\"; var t, d = clock.Now(), clock.Second", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := clockUses(file); !slices.Equal(got, []string{"Now"}) {
		t.Errorf("clock uses are %q, want Now", got)
	}
	if _, err := os.Stat("../topology/cpuset/set.go"); err != nil || len(sources(t, "topology")) == 0 {
		t.Errorf("the product's files are not found: %v", err)
	}
}
