package bootstrap

import "strings"

// shellQuote quotes text as one word of a POSIX shell: within single quotes nothing is expanded, and only the quote
// itself must leave them.
func shellQuote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// powerShellQuotes doubles every character that PowerShell treats as a single quote: the apostrophe and its typographic
// variants U+2018, U+2019, U+201A and U+201B. PowerShell reads the second of a pair as a character of the string.
var powerShellQuotes = strings.NewReplacer(
	"'", "''", "\u2018", "\u2018\u2018", "\u2019", "\u2019\u2019", "\u201a", "\u201a\u201a", "\u201b", "\u201b\u201b",
)

// powerShellQuote quotes text as a single-quoted string of PowerShell, in which nothing is expanded.
func powerShellQuote(text string) string {
	return "'" + powerShellQuotes.Replace(text) + "'"
}
