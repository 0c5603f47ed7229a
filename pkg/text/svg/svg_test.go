package svg

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	t.Parallel()
	p := New(100, 50, `<"a" & b>`, ".mine{fill:none}")
	if next := p.Key(10, 20, "late", "late & more"); next <= 10+12 {
		t.Errorf("the next entry of the legend is at %g", next)
	}
	p.Rule(0, 100, 25)
	p.Text("faint", Middle, 50, 40, "<x>")
	text := p.End()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
	for _, want := range []string{"prefers-color-scheme:dark", ".mine{", "&lt;x&gt;", "late &amp; more", `<title>&lt;&quot;a&quot; &amp; b&gt;`} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}
