package propertytest

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/scripttest"
)

// messageLines are the lines with a message: in the text of a decision, and in a script. Groups are the code and the message.
var messageLines = []*regexp.Regexp{
	regexp.MustCompile(`^  \S* \[(\w+)\]: (.*)$`),
	regexp.MustCompile(`^stay \S+ \[(\w+)\]: (.*)$`),
	regexp.MustCompile(`^(stay) \S+: (.*)$`),
	regexp.MustCompile(`^(held back) \S+: (.*)$`),
	regexp.MustCompile(`^(ignore terms) of \S+: (.*)$`),
	regexp.MustCompile(`^(explained): (.*)$`),
	regexp.MustCompile(`^(prefer) \S+: (.*): (?:kept|dropped|unmet) .*$`),
}

// scriptReason is a reason in a script, which has the code at the end.
var scriptReason = regexp.MustCompile(`^       (?:[\w-]+: )?(.*) \((\w+)\)$`)

// Parts of a message that repeat what other lines have, or hold lists of values.
var shortened = []replacement{
	{regexp.MustCompile(`nearest .*`), "nearest ..."},
	{regexp.MustCompile(`(Not all pods would schedule, ).*`), "${1}..."},
	{regexp.MustCompile(`(filtered out all instance types: ).*`), "${1}..."},
	{regexp.MustCompile(`but for (these \d+ reasons|this reason) it fits .*`), "but for ... it fits ..."},
	{regexp.MustCompile(`\(pods now: .*?\)( allow| do|,|$)`), "(pods now: ...)$1"},
	{regexp.MustCompile(`(with maxSkew \d+ \(pods now: \.\.\.\)).* allows`), "$1 allows"},
	{regexp.MustCompile(`\(there (is|are) only [^)]*\)`), "(there is only ...)"},
	{regexp.MustCompile(`to pods with .*?(: there are none|: a new node|, which are|;|$)`), "to pods with ...$1"},
	{regexp.MustCompile(`(terminate) .* \(saves`), "$1 ... (saves"},
	{regexp.MustCompile(`(move to|at \S+ for) [^;]*`), "$1 ..."},
	{regexp.MustCompile(`"[^"]*"`), `"..."`},
}

// pieces separates what is combined in many ways, so that the golden file has each piece once.
var pieces = regexp.MustCompile(`; and |; |, and another |, and the pod |, and pod | because |but `)

// placeholders replace what is particular to one world or script.
var placeholders = []replacement{
	{regexp.MustCompile(`\b(default|other|kube-system)/[\w-]+(, (default|other)/[\w-]+)*`), "<pod>"},
	{
		regexp.MustCompile(`\b(example\.com/[a-z-]+|[a-z.0-9-]*kubernetes\.io/[a-z-]+|karpenter\.sh/[a-z-]+|` +
			`rack|team|size|tier|disk|windows-build)\b`),
		"<label>",
	},
	{regexp.MustCompile(`<label>( not in \([^)]*\)| in \([^)]*\)| (<|>)=? ?\d+|=[\w.*-]+|:\w+)(, <label>[^:]*)?`), "<label> ..."},
	{regexp.MustCompile(`\b(in|as|only) [a-z](, [a-z])*\b`), "$1 <name>"},
	{regexp.MustCompile(`\b(z\d(-id)?|[pt]\d|n\d(-claim)?|r\d|amd64|arm64|spot|on-demand|general|new-\d+)\b|` +
		`\b[a-z]\w*\.\w*(small|medium|large)\b`), "<name>"},
	{regexp.MustCompile(`\$?\d+(\.\d+)?(e-\d+)?(m|Mi|Gi|Ki|k|M|G)?\b`), "#"},
	{regexp.MustCompile(`<name> \(#\)(, <name> \(#\))*`), "<name> (#)"},
	{regexp.MustCompile(`<name>((, | and )<name>)+`), "<name>"},
	{
		regexp.MustCompile(`# (cpu|memory|nodes|nvidia\.com/gpu|attachable-volumes-[\w.-]+)` +
			`(, # (cpu|memory|nodes|nvidia\.com/gpu|attachable-volumes-[\w.-]+))*`),
		"# <resource>",
	},
}

type replacement struct {
	what *regexp.Regexp
	with string
}

func replaced(text string, by []replacement) string {
	for _, r := range by {
		text = r.what.ReplaceAllString(text, r.with)
	}
	return text
}

// collect adds the pieces of the messages in a text.
func collect(into map[string]bool, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		code, message := "", ""
		for _, form := range messageLines {
			if m := form.FindStringSubmatch(line); m != nil {
				code, message = m[1], m[2]
				break
			}
		}
		if m := scriptReason.FindStringSubmatch(line); m != nil {
			code, message = m[2], m[1]
		}
		if code != "" {
			addPieces(into, code, message)
		}
	}
}

func addPieces(into map[string]bool, code, message string) {
	for _, piece := range pieces.Split(replaced(message, shortened), -1) {
		if piece != "" {
			into[code+": "+replaced(piece, placeholders)] = true
		}
	}
}

// Nobody changes a message by accident: testdata/messages.txt has each one that worlds and scripts give, in pieces, once, with
// placeholders for names and numbers. TestDecisionsOfWorlds and TestScripts compare them as they are.
func TestMessages(t *testing.T) {
	all := map[string]bool{}
	for _, text := range decidedWorlds() {
		collect(all, string(text))
	}
	paths, err := filepath.Glob("../scripttest/testdata/*.txt")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d scripts, %v", len(paths), err)
	}
	for _, path := range paths {
		script, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := scripttest.Run(path, string(script))
		if err != nil {
			t.Fatal(err)
		}
		collect(all, text)
	}
	compareMessages(t, slices.Sorted(maps.Keys(all)))
}

// compareMessages reports the messages that are new, and those that are gone.
func compareMessages(t *testing.T, got []string) {
	t.Helper()
	const path = "testdata/messages.txt"
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(got, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(bytes.TrimSpace(data)), "\n")
	var changes []string
	for _, m := range got {
		if _, known := slices.BinarySearch(want, m); !known {
			changes = append(changes, "+"+m)
		}
	}
	for _, m := range want {
		if _, still := slices.BinarySearch(got, m); !still {
			changes = append(changes, "-"+m)
		}
	}
	if len(changes) > 0 {
		t.Errorf("messages that %s has (-) and that there are (+); -update writes it:\n%s", path, strings.Join(changes, "\n"))
	}
}

func TestMessagesAreNormalized(t *testing.T) {
	got := map[string]bool{}
	collect(got, `  p0 [Resources]: fits t4 in z2, but the pod needs 900m cpu, and t2, the largest type that suits it, has 570m for pods
stay n1 [PodDoNotDisrupt]: pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/a-001)
       general: the pod requires rack=r1, a label that neither the pool nor its instance types have (Requirements)
launch of p0: t0 z1 spot $0.1
`)
	want := []string{
		`PodDoNotDisrupt: pod has "..." annotation (Pod=<pod>)`,
		`Requirements: the pod requires <label> ..., a label that neither the pool nor its instance types have`,
		`Resources: fits <name> in <name>, `,
		`Resources: the pod needs # <resource>, and <name>, the largest type that suits it, has # for pods`,
	}
	if list := slices.Sorted(maps.Keys(got)); !slices.Equal(list, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(list, "\n"), strings.Join(want, "\n"))
	}
}
