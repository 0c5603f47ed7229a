package docs

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/test/docs/markdown"
	"github.com/sluice-dev/sluice/test/protocol"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

var updateFields = flag.Bool("update-fields", false, "write the tables of docs/api.md anew")

func isRequest(t *testing.T, b markdown.Block) {
	words := strings.Fields(b.Text)
	if len(words) < 2 || !strings.HasPrefix(words[1], "/v1/") {
		t.Errorf("%q is no request", b.Text)
	}
}

func isJSON(t *testing.T, b markdown.Block) {
	if len(values(t, strings.NewReader(b.Text), 100)) == 0 {
		t.Error("no JSON")
	}
}

// values reads at most that many JSON values.
func values(t *testing.T, r io.Reader, most int) (all []any) {
	t.Helper()
	for in := json.NewDecoder(r); len(all) < most; {
		var value any
		err := in.Decode(&value)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, value)
	}
	return all
}

// decisions is a trail that a plugin finds.
const decisions = `{"time":"2026-05-01T12:00:00Z","mode":"on","controller":"pools","object":"pool online","action":"grow","from":"2 CPUs","to":"4 CPUs","why":"load 80 %","facts":[{"name":"usage_cpus","value":1.6}]}
`

// A plugin answers each request of docs/api.md, with at least the fields that are shown.
func TestAPI(t *testing.T) {
	t.Parallel()
	r := protocol.New(t)
	host := r.Host(t, madeUp)
	if err := os.MkdirAll(filepath.Join(r.Dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, "state", "audit.jsonl"), []byte(decisions), 0o600); err != nil {
		t.Fatal(err)
	}
	pod, err := r.RunPod(protocol.Pod{Name: "db", QoS: "guaranteed", Annotations: map[string]string{"class.sluice.dev": "LSE"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(pod, "main", protocol.Requests{CPU: 2000, Limit: 2000, Memory: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	r.Sluice(t, filepath.Join(binDir, "sluice"), host, "")
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(r.Dir, "status.sock"))
	}}}

	p := find(t, filepath.Join("docs", "api.md"))
	asked := 0
	for i, b := range p.Blocks {
		if b.Kind != "http" {
			continue
		}
		asked++
		head, body, _ := strings.Cut(b.Text, "\n\n")
		words := strings.Fields(head)
		request, err := http.NewRequestWithContext(t.Context(), words[0], "http://sluice"+words[1], strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(response.Body)
			t.Fatalf("line %d: %s: %s", b.Line, response.Status, text)
		}
		shown := values(t, strings.NewReader(p.Blocks[i+1].Text), 100)
		for k, got := range values(t, response.Body, len(shown)) {
			if lack := lacks(got, shown[k]); lack != "" {
				t.Errorf("line %d: the answer has no %s", b.Line, lack)
			}
		}
		response.Body.Close()
	}
	if asked < 5 {
		t.Errorf("only %d requests", asked)
	}
}

// anyID stands for a container's ID.
const anyID = "4f6a…"

// lacks names what the documentation shows and the answer lacks, or has with another kind.
func lacks(got, shown any) string {
	switch want := shown.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("object, but %T", got)
		}
		for name, value := range want {
			member, ok := have[name]
			if name == anyID && len(have) > 0 {
				for _, member = range have {
					ok = true
				}
			}
			if !ok {
				return name
			}
			if lack := lacks(member, value); lack != "" {
				return name + "." + lack
			}
		}
	case []any:
		have, ok := got.([]any)
		if !ok || len(have) < len(want) {
			return fmt.Sprintf("list of %d", len(want))
		}
		for i := range want {
			if lack := lacks(have[i], want[i]); lack != "" {
				return fmt.Sprintf("[%d].%s", i, lack)
			}
		}
	default:
		if reflect.TypeOf(got) != reflect.TypeOf(shown) {
			return fmt.Sprintf("%T, but %T", shown, got)
		}
	}
	return ""
}

// docs/api.md has a table for each part of a status, generated from the comments in the source by:
// go test ./test/docs -run APIFields -update-fields
func TestAPIFields(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- fields -->\n", "<!-- /fields -->\n"
	name := filepath.Join("docs", "api.md")
	text := string(read(t, name))
	before, rest, _ := strings.Cut(text, begin)
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s lacks its marks", name)
	}
	source := readSource(t, "pkg/status", "pkg/view/statusapi", "pkg/decide/control", "pkg/observe", "pkg/peers", "pkg/workload", "pkg/engine/audit", "pkg/knobs")
	var tables bytes.Buffer
	seen := map[reflect.Type]bool{}
	for queue := []reflect.Type{reflect.TypeFor[status.Status](), reflect.TypeFor[statusapi.Log](), reflect.TypeFor[status.Answer]()}; len(queue) > 0; queue = queue[1:] {
		if !seen[queue[0]] {
			seen[queue[0]] = true
			queue = append(queue, table(t, &tables, queue[0], source)...)
		}
	}
	want := before + begin + tables.String() + "\n" + end + after
	if want == text {
		return
	}
	if !*updateFields {
		t.Errorf("the tables of %s are old: go test ./test/docs -run APIFields -update-fields", name)
		return
	}
	if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table writes a struct's fields and returns the structs among their types.
func table(t *testing.T, into *bytes.Buffer, of reflect.Type, source source) (more []reflect.Type) {
	name := of.Name()
	fmt.Fprintf(into, "\n### %s\n\n%s\n\n| field | is | |\n|---|---|---|\n", name, source.comments[of.String()])
	var rows func(of reflect.Type)
	rows = func(of reflect.Type) {
		for f := range of.Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case key == "-", !f.IsExported() && !f.Anonymous:
				continue
			case f.Anonymous && key == "":
				rows(f.Type)
				continue
			}
			kind, parts := kindOf(f.Type, source.constants)
			more = append(more, parts...)
			what := source.comments[of.String()+"."+f.Name]
			if !sentence.MatchString(what) {
				t.Errorf("%s.%s: the comment in the source must be a sentence that makes sense alone, such as \"Requested memory in bytes; absent if it is unknown.\", not %q", of, f.Name, what)
			}
			if f.Type.Kind() == reflect.String && f.Type.Name() == "string" && alternatives.MatchString(what) {
				t.Errorf("%s.%s: an enumeration has a type of its own with its values as constants", of, f.Name)
			}
			fmt.Fprintf(into, "| `%s` | %s | %s |\n", key, kind, strings.ReplaceAll(what, "|", `\|`))
		}
	}
	rows(of)
	return more
}

// sentence matches a field's comment that begins and ends as a sentence does.
var sentence = regexp.MustCompile(`^[A-Z].+\.$`)

// alternatives matches a comment that lists all values of a field.
var alternatives = regexp.MustCompile(`: "[^"]+"(, "[^"]+")* (\(.*\) )?or "[^"]+"`)

// kindOf describes a type as JSON shows it; constants are the values of enumerations.
func kindOf(t reflect.Type, constants map[string][]string) (kind string, parts []reflect.Type) {
	_, isText := reflect.TypeAssert[encoding.TextMarshaler](reflect.New(t))
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time", nil
	case t == reflect.TypeFor[time.Duration]():
		return "nanoseconds", nil
	case t == reflect.TypeFor[cpuset.Set]():
		return "set: `0-3,8`", nil
	case len(constants[t.String()]) > 0:
		return "text: `" + strings.Join(constants[t.String()], "`, `") + "`", nil
	case isText || t.Kind() == reflect.String:
		return "text", nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem(), constants)
	case reflect.Slice:
		kind, parts = kindOf(t.Elem(), constants)
		return "list: " + kind, parts
	case reflect.Struct:
		return fmt.Sprintf("[%s](#%s)", t.Name(), strings.ToLower(t.Name())), []reflect.Type{t}
	case reflect.Bool:
		return "true or false", nil
	default:
		return "number", nil
	}
}

// source holds comments and constants from the source.
type source struct {
	comments  map[string]string   // comments on types and fields: "status.Pool", "status.Pool.Name"
	constants map[string][]string // constants of types that are text: "status.Level"
}

func readSource(t *testing.T, dirs ...string) source {
	t.Helper()
	s := source{map[string]string{}, map[string][]string{}}
	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if decl, ok := d.(*ast.GenDecl); ok {
					s.read(file.Name.Name+".", decl)
				}
			}
		}
	}
	return s
}

// read adds the declarations of a package's types and constants.
func (s source) read(pkg string, decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			note(s.comments, pkg+spec.Name.Name, decl.Doc, spec)
		case *ast.ValueSpec:
			of, named := spec.Type.(*ast.Ident)
			if !named || len(spec.Values) != 1 {
				continue
			}
			if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING && value.Value != `""` {
				s.constants[pkg+of.Name] = append(s.constants[pkg+of.Name], strings.Trim(value.Value, `"`))
			}
		}
	}
}

func note(words map[string]string, name string, doc *ast.CommentGroup, of *ast.TypeSpec) {
	oneLine := func(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
	words[name] = oneLine(doc)
	list, ok := of.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range list.Fields.List {
		text := oneLine(f.Comment)
		if text == "" {
			text = oneLine(f.Doc)
		}
		for _, n := range f.Names {
			words[name+"."+n.Name] = text
		}
	}
}
