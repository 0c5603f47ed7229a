// Package svg draws pictures that follow the reader's light or dark setting.
package svg

import (
	"fmt"
	"strings"
)

// style has the classes of all pictures. Colours belong to classes rather than variables, because
// viewers other than browsers don't support those (librsvg, Inkscape).
const style = `text{font:12px system-ui,sans-serif;fill:#1f2328}
.title{font-weight:600}.faint{fill:#656d76}.paper{fill:#fff}
.grid{stroke:#d8dee4;stroke-width:1}.key{fill:currentColor}.late{fill:#cf222e}
.p0{color:#6639ba}.p1{color:#0969da}.p2{color:#bc4c00}.p3{color:#1a7f37}.p4{color:#656d76}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#8d96a0}.paper{fill:#0d1117}.grid{stroke:#30363d}.late{fill:#f85149}
.p0{color:#a371f7}.p1{color:#4493f8}.p2{color:#f0883e}.p3{color:#3fb950}.p4{color:#8d96a0}}
`

// Colours is the number of the colours: the classes p0, p1 and so on.
const Colours = 5

// Picture is a picture that is being drawn. What is written to it is SVG.
type Picture struct{ strings.Builder }

// New begins a picture of that size in its own units. The title is what is read aloud, and extra are
// further CSS classes.
func New(width, height float64, title, extra string) *Picture {
	p := &Picture{}
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img">`+"\n", width, height)
	fmt.Fprintf(p, "<title>%s</title>\n<style>%s%s</style>\n", escape(title), style, extra)
	p.WriteString(`<rect width="100%" height="100%" class="paper"/>` + "\n")
	return p
}

// End ends the picture and returns it.
func (p *Picture) End() string {
	p.WriteString("</svg>\n")
	return p.String()
}

// Anchor is the side of a text that stands at its place.
type Anchor string

// The anchors.
const (
	Start  Anchor = "start"
	Middle Anchor = "middle"
	End    Anchor = "end"
)

// Text writes a text; y is its baseline.
func (p *Picture) Text(class string, anchor Anchor, x, y float64, text string) {
	fmt.Fprintf(p, `<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, anchor, x, y, escape(text))
}

// Rule draws a line of the grid from left to right.
func (p *Picture) Rule(left, right, y float64) {
	fmt.Fprintf(p, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", left, right, y, y)
}

// Key writes an entry of the legend, which has a coloured square, and returns where the next one
// begins.
func (p *Picture) Key(x, y float64, class, text string) float64 {
	const square, gap, letter = 12, 5, 7
	fmt.Fprintf(p, `<rect x="%g" y="%g" width="%d" height="%d" class="%s"/>`, x, y-10, square, square, class)
	p.Text("", Start, x+square+gap, y, text)
	return x + square + 3.5*gap + letter*float64(len(text))
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(text)
}
