package userdata

import (
	"fmt"
	"regexp"
	"strings"
)

// The part of shell that bootstrap scripts use: words, both kinds of quotes, backslashes, line
// continuations, comments, assignments of variables and their expansion. A script is read as a list
// of simple commands; control flow, pipes and substitutions are not run, only stepped over.

// command is one simple command, its words expanded.
type command []string

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// commands reads a script. Variables that were not assigned before expand to nothing, as in shell.
func commands(script string) ([]command, error) {
	l := lexer{in: []rune(strings.ReplaceAll(script, "\r", "")), vars: map[string]string{}}
	for l.pos < len(l.in) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.endCommand()
	return l.done, nil
}

// words splits a line of flags as systemd does when it expands an environment variable.
func words(line string) ([]string, error) {
	cmds, err := commands(strings.ReplaceAll(line, "\n", " "))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range cmds {
		out = append(out, c...)
	}
	return out, nil
}

type lexer struct {
	in   []rune
	pos  int
	word strings.Builder
	open bool // a word has begun, possibly an empty quoted one
	cmd  command
	done []command
	vars map[string]string
}

// next consumes one character or one quoted string.
func (l *lexer) next() error {
	r := l.in[l.pos]
	l.pos++
	switch r {
	case '\n':
		l.endCommand()
	case ';', '&', '|', '(', ')':
		l.endCommand()
	case ' ', '\t':
		l.endWord()
	case '#':
		if l.open {
			l.put(r)
			return nil
		}
		for l.pos < len(l.in) && l.in[l.pos] != '\n' {
			l.pos++
		}
	case '\\':
		l.escape()
	case '\'':
		return l.single()
	case '"':
		return l.double()
	case '$':
		l.expand()
	default:
		l.put(r)
	}
	return nil
}

func (l *lexer) put(r rune) {
	l.open = true
	l.word.WriteRune(r)
}

// escape handles a backslash outside quotes: a continued line, or the next character as it is.
func (l *lexer) escape() {
	if l.pos >= len(l.in) {
		return
	}
	r := l.in[l.pos]
	l.pos++
	if r == '\n' {
		return
	}
	l.put(r)
}

func (l *lexer) single() error {
	l.open = true
	for ; l.pos < len(l.in); l.pos++ {
		if l.in[l.pos] == '\'' {
			l.pos++
			return nil
		}
		l.word.WriteRune(l.in[l.pos])
	}
	return fmt.Errorf("unexpected EOF while looking for matching `''")
}

func (l *lexer) double() error {
	l.open = true
	for l.pos < len(l.in) {
		r := l.in[l.pos]
		l.pos++
		switch {
		case r == '"':
			return nil
		case r == '$':
			l.expand()
		case r == '\\' && l.pos < len(l.in) && strings.ContainsRune("\"\\$`\n", l.in[l.pos]):
			if l.in[l.pos] != '\n' {
				l.word.WriteRune(l.in[l.pos])
			}
			l.pos++
		default:
			l.word.WriteRune(r)
		}
	}
	return fmt.Errorf("unexpected EOF while looking for matching `\"'")
}

// expand handles $NAME and ${NAME}; any other use of $ stays as it is written.
func (l *lexer) expand() {
	rest := string(l.in[l.pos:])
	m := variable.FindStringSubmatch(rest)
	if m == nil {
		l.put('$')
		return
	}
	l.pos += len([]rune(m[0]))
	value := l.vars[m[1]+m[2]]
	if value != "" {
		l.open = true
		l.word.WriteString(value)
	}
}

var variable = regexp.MustCompile(`^(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

func (l *lexer) endWord() {
	if !l.open {
		return
	}
	l.cmd = append(l.cmd, l.word.String())
	l.word.Reset()
	l.open = false
}

func (l *lexer) endCommand() {
	l.endWord()
	if len(l.cmd) == 0 {
		return
	}
	if l.assign() {
		l.cmd = nil
		return
	}
	l.done = append(l.done, l.cmd)
	l.cmd = nil
}

// assign keeps the variables of a command that is nothing but assignments (export in front allowed).
func (l *lexer) assign() bool {
	ws := l.cmd
	if ws[0] == "export" {
		ws = ws[1:]
	}
	for _, w := range ws {
		if !assignment.MatchString(w) {
			return false
		}
	}
	for _, w := range ws {
		name, value, _ := strings.Cut(w, "=")
		l.vars[name] = value
	}
	return len(ws) > 0
}
