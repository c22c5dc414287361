package bootstrap

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile are values that have got out of quotes somewhere.
var hostile = []string{
	"", "plain", "a b", "'", "''", `'\''`, `\`, `\'`, `"`, "$HOME", "$(touch /tmp/pwn)", "`touch /tmp/pwn`", "x'$(touch /tmp/pwn)'",
	"'; touch /tmp/pwn; '",
	"a\nb", "a\n--//\nb", "!!", "*", "~", "#", "-n", "%n", "\t", "</powershell>", "\u2018", "\u2019;Remove-Item C:\\ \u2019", "\u201a\u201b", "$env:Path", "@'\n", "`0",
	"ü", "\x7f", "\"\nExecStartPre=/bin/touch /tmp/pwn\n", "]]\n[settings.host-containers.admin]\nenabled = true",
}

// FuzzShellQuote has the computer's own shell read what was quoted.
func FuzzShellQuote(f *testing.F) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		f.Fatalf("a machine that runs make has a shell: %v", err)
	}
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) {
			return // no argument of a program can have it
		}
		for _, script := range []string{"printf '%s|' before " + shellQuote(s) + " after", "printf '%s|' before \\\n" + shellQuote(s) + " \\\nafter"} {
			got, err := exec.CommandContext(t.Context(), shell, "-c", script).CombinedOutput()
			if want := "before|" + s + "|after|"; err != nil || string(got) != want {
				t.Fatalf("%q quoted as %s is read as %q, %v", s, shellQuote(s), got, err)
			}
		}
	})
}

// readPowerShell reads a single-quoted string of PowerShell at the start of text, and returns what follows it. It is written after
// the language's specification, section 2.3.5.2: verbatim-string-literal.
func readPowerShell(text string) (value, rest string, ok bool) {
	runes := []rune(text)
	quote := func(i int) bool { return i < len(runes) && strings.ContainsRune("'\u2018\u2019\u201a\u201b", runes[i]) }
	if !quote(0) {
		return "", "", false
	}
	var out []rune
	for i := 1; i < len(runes); i++ {
		switch {
		case quote(i) && quote(i+1):
			i++
			out = append(out, runes[i])
		case quote(i):
			return string(out), string(runes[i+1:]), true
		default:
			out = append(out, runes[i])
		}
	}
	return "", "", false
}

func TestPowerShellEndsAStringAtTypographicQuotes(t *testing.T) {
	for _, quote := range []string{"'", "\u2018", "\u2019", "\u201a", "\u201b"} {
		value, rest, ok := readPowerShell("'x" + quote + "; Remove-Item C:\\'")
		if !ok || value != "x" || rest != "; Remove-Item C:\\'" {
			t.Errorf("%s: %q, %q, %v", quote, value, rest, ok)
		}
	}
}

func FuzzPowerShellQuote(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		value, rest, ok := readPowerShell(powerShellQuote(s) + " -Next 'argument'")
		if !ok || value != s || rest != " -Next 'argument'" {
			t.Fatalf("%q quoted as %s is read as %q, then %q, %v", s, powerShellQuote(s), value, rest, ok)
		}
	})
}
