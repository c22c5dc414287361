package glossarytest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Path states where the glossary is, from the root of the repository.
const Path = "docs/glossary.md"

const (
	wordsHeader   = "| Not | But | Checked |"
	phrasesHeader = "| Phrase | Why |"
	// checkedInProse marks the rows that Check enforces; other rows need a reviewer.
	checkedInProse = "prose"
)

// Glossary is the part of docs/glossary.md that a program can enforce.
type Glossary struct {
	words   *regexp.Regexp    // any word to avoid
	instead map[string]string // by word, in lower case
	allowed *regexp.Regexp    // phrases in which a word to avoid is right; nil if there are none
}

// Finding is a word to avoid in a text.
type Finding struct {
	Line          int // from 1
	Word, Instead string
	Text          string // of the line
}

// String formats the finding for a test failure.
func (f Finding) String() string {
	return fmt.Sprintf("line %d: %q: use %s: %s", f.Line, f.Word, f.Instead, f.Text)
}

// Load reads the glossary of the repository that is at root.
func Load(root string) (*Glossary, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(Path)))
	if err != nil {
		return nil, err
	}
	return Parse(string(text))
}

// Parse reads the tables of a glossary.
func Parse(text string) (*Glossary, error) {
	g := &Glossary{instead: map[string]string{}}
	var phrases []string
	header := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			header = ""
			continue
		case header == "":
			header = line
			continue
		case strings.HasPrefix(line, "|-"):
			continue
		}
		row := cells(line)
		switch {
		case header == phrasesHeader:
			phrases = append(phrases, forms(row[0])...)
		case header != wordsHeader:
		case len(row) != 3:
			return nil, fmt.Errorf("%s: row with %d cells, want 3: %s", Path, len(row), line)
		case row[2] == checkedInProse:
			for _, word := range forms(row[0]) {
				g.instead[word] = row[1]
			}
		}
	}
	if len(g.instead) == 0 {
		return nil, errors.New(Path + ": no table with the header " + wordsHeader)
	}
	words := make([]string, 0, len(g.instead))
	for word := range g.instead {
		words = append(words, word)
	}
	g.words = anyOf(words)
	if len(phrases) > 0 {
		g.allowed = anyOf(phrases)
	}
	return g, nil
}

// Check returns the words to avoid in plain text, in the order of the text.
func (g *Glossary) Check(text string) (out []Finding) {
	lines := strings.Split(text, "\n")
	prose := text
	if g.allowed != nil {
		// The line breaks stay, so that lines keep their numbers.
		prose = g.allowed.ReplaceAllStringFunc(prose, func(phrase string) string { return strings.Repeat("\n", strings.Count(phrase, "\n")) })
	}
	for _, at := range g.words.FindAllStringIndex(prose, -1) {
		word, line := prose[at[0]:at[1]], strings.Count(prose[:at[0]], "\n")
		out = append(out, Finding{Line: line + 1, Word: word, Instead: g.instead[normalize(word)], Text: strings.TrimSpace(lines[line])})
	}
	return out
}

var (
	codeSpan   = regexp.MustCompile("`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
)

// CheckMarkdown is Check for a Markdown page. It skips code blocks, code spans and link targets.
func (g *Glossary) CheckMarkdown(text string) []Finding {
	var prose strings.Builder
	inBlock := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			inBlock = !inBlock
			line = "\n"
		case inBlock:
			line = "\n"
		}
		// A span becomes a stand-in, so that the words around it do not join to a phrase.
		prose.WriteString(linkTarget.ReplaceAllString(codeSpan.ReplaceAllString(line, "CODE"), "]"))
	}
	return g.Check(prose.String())
}

var quotation = regexp.MustCompile(`"[^"\n]*"`)

// CheckComment is Check for a comment of a Go file, without its slashes. It skips code blocks, which are indented, code spans, quotations
// and annotations such as +kubebuilder.
func (g *Glossary) CheckComment(text string) []Finding {
	var prose strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "   ") || strings.HasPrefix(strings.TrimSpace(line), "+") {
			line = "\n"
		}
		prose.WriteString(quotation.ReplaceAllString(codeSpan.ReplaceAllString(line, "CODE"), "TEXT"))
	}
	return g.Check(prose.String())
}

// cells splits a row of a table.
func cells(line string) []string {
	row := strings.Split(strings.Trim(line, "|"), "|")
	for i := range row {
		row[i] = strings.TrimSpace(row[i])
	}
	return row
}

var parenthesis = regexp.MustCompile(`\([^)]*\)`)

// forms are the words or phrases of a cell, in lower case, without what explains them.
func forms(cell string) (out []string) {
	for word := range strings.SplitSeq(parenthesis.ReplaceAllString(cell, ""), ",") {
		if word = normalize(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}

func normalize(word string) string { return strings.ToLower(strings.Join(strings.Fields(word), " ")) }

// anyOf matches any of the phrases as whole words, the longest first, in any case and with any white space.
func anyOf(phrases []string) *regexp.Regexp {
	slices.SortFunc(phrases, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	quoted := make([]string, len(phrases))
	for i, phrase := range phrases {
		quoted[i] = strings.ReplaceAll(regexp.QuoteMeta(phrase), " ", `\s+`)
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(quoted, "|") + `)\b`)
}
