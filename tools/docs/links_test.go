package docs

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	gmtext "github.com/yuin/goldmark/text"
)

// markdownPage is what links of a page and to a page need.
type markdownPage struct {
	anchors map[string]bool
	links   []string
}

var (
	idAttribute = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	source      = regexp.MustCompile(`(?:src|href)="([^"]+)"`)
)

// readPage parses a page of the repository. Anchors are those that GitHub makes of headings.
func readPage(t *testing.T, name string) markdownPage {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(Root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	out := markdownPage{anchors: map[string]bool{}}
	tree := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(gmtext.NewReader(content))
	err = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			base := slug(plain(n, content))
			anchor := base
			for i := 1; out.anchors[anchor]; i++ {
				anchor = fmt.Sprintf("%s-%d", base, i)
			}
			out.anchors[anchor] = true
		case *ast.Link:
			out.links = append(out.links, string(n.Destination))
		case *ast.Image:
			out.links = append(out.links, string(n.Destination))
		case *ast.AutoLink:
			out.links = append(out.links, string(n.URL(content)))
		case *ast.RawHTML, *ast.HTMLBlock:
			html := rawText(n, content)
			for _, m := range idAttribute.FindAllStringSubmatch(html, -1) {
				out.anchors[m[1]] = true
			}
			for _, m := range source.FindAllStringSubmatch(html, -1) {
				out.links = append(out.links, m[1])
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rawText is the HTML of a node.
func rawText(n ast.Node, content []byte) string {
	if raw, ok := n.(*ast.RawHTML); ok {
		return string(raw.Segments.Value(content))
	}
	return string(n.Lines().Value(content))
}

// plain is the text of a heading without its marks.
func plain(n ast.Node, content []byte) string {
	var out bytes.Buffer
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				out.Write(n.Segment.Value(content))
			}
		case *ast.String:
			if entering {
				out.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// slug is the anchor that GitHub makes of a heading.
func slug(heading string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			out.WriteRune(r)
		case r == ' ':
			out.WriteByte('-')
		}
	}
	return out.String()
}

// pages are all Markdown pages of the repository.
func pages(t *testing.T) (out []string) {
	t.Helper()
	err := filepath.WalkDir(Root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && d.Name() != ".github" && p != Root
		if d.IsDir() && (hidden || slices.Contains([]string{"node_modules", "bin", "testdata", "site"}, d.Name())) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(p, ".md") {
			name, err := filepath.Rel(Root, p)
			out = append(out, filepath.ToSlash(name))
			return err
		}
		return nil
	})
	if err != nil || len(out) < 20 {
		t.Fatalf("%d pages (%v)", len(out), err)
	}
	return out
}

// Every link leads to a file of the repository, to a heading of a page, or is a well-formed address.
func TestLinks(t *testing.T) {
	all, cache := pages(t), map[string]markdownPage{}
	read := func(name string) markdownPage {
		if _, ok := cache[name]; !ok {
			cache[name] = readPage(t, name)
		}
		return cache[name]
	}
	for _, name := range all {
		for _, link := range read(name).links {
			if link == "demo/index.html" {
				continue // make docs writes it into the site: see docs/site/copy.mjs
			}
			if problem := check(name, link, read); problem != "" {
				t.Errorf("%s: %s: %s", name, link, problem)
			}
		}
	}
}

// check is what is wrong with a link of a page; empty if nothing is.
func check(name, link string, read func(string) markdownPage) string {
	address, err := url.Parse(link)
	switch {
	case err != nil:
		return err.Error()
	case address.Scheme == "mailto":
		return ""
	case address.Scheme != "":
		if address.Scheme != "https" || !strings.Contains(address.Host, ".") {
			return "is no https address"
		}
		return ""
	case strings.HasPrefix(link, "/"):
		return "is not relative"
	}
	target := name
	if address.Path != "" {
		target = path.Join(path.Dir(name), address.Path)
	}
	if _, err := os.Stat(filepath.Join(Root, filepath.FromSlash(target))); err != nil {
		return "does not exist"
	}
	if address.Fragment != "" && strings.HasSuffix(target, ".md") && !read(target).anchors[address.Fragment] {
		return "has no such heading"
	}
	return ""
}

func TestBrokenLinksAreFound(t *testing.T) {
	read := func(name string) markdownPage { return readPage(t, name) }
	for link, broken := range map[string]bool{
		"lab.md": false, "none.md": true, "../README.md#try-it": false, "../README.md#none": true, "https://example.com/x": false,
		"http://example.com": true, "#settings": false, "#none": true, "/docs/lab.md": true,
	} {
		if problem := check("docs/install.md", link, read); (problem != "") != broken {
			t.Errorf("%s: %q", link, problem)
		}
	}
}

// The site's list of pages has only pages that exist.
func TestPagesOfTheSiteExist(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(Root, "docs", "site", ".vitepress", "config.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	listed := regexp.MustCompile(`page\('[^']*', '([^']*)'\)`).FindAllStringSubmatch(string(config), -1)
	if len(listed) < 20 {
		t.Errorf("only %d pages", len(listed))
	}
	for _, page := range listed {
		if _, err := os.Stat(filepath.Join(Root, "docs", filepath.FromSlash(page[1])+".md")); err != nil {
			t.Errorf("%s: %v", page[1], err)
		}
	}
}
