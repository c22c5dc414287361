package userdata

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// windowsBootstrap is what EKS optimized images of Windows bring along.
const windowsBootstrap = `Start-EKSBootstrap.ps1`

// windowsParameters are the script's parameters, each of which takes a value. Those that readWindowsCall does not use
// have no effect on what the API server or a scheduler can see.
var windowsParameters = []string{
	"-EKSClusterName", "-APIServerEndpoint", "-Base64ClusterCA", "-KubeletExtraArgs", "-DNSClusterIP", "-ContainerRuntime", "-ServiceCIDR",
	"-ExcludedSnatCIDRs", "-KubeProxyExtraArgs",
}

// powerShellPart finds the scripts that EC2Launch runs: all that stands between these tags.
var powerShellPart = regexp.MustCompile(`(?s)<powershell>(.*?)</powershell>`)

// decodeWindows runs the PowerShell parts of the user data as EC2Launch does, which is to state that it looks for calls
// of the bootstrap script. The last call wins.
func decodeWindows(raw []byte) (Config, error) {
	var call []string
	for _, part := range powerShellPart.FindAllStringSubmatch(string(raw), -1) {
		statements, err := powerShell(part[1])
		if err != nil {
			return Config{}, fmt.Errorf("user data script: %w", err)
		}
		for _, s := range statements {
			if len(s) > 1 && s[0] == "&" && strings.HasSuffix(s[1], windowsBootstrap) {
				call = s[2:]
			}
		}
	}
	if call == nil {
		return Config{}, fmt.Errorf("no <powershell> script in the user data calls %s: kubelet was never configured", windowsBootstrap)
	}
	return readWindowsCall(call)
}

// readWindowsCall reads the arguments of the bootstrap script.
func readWindowsCall(args []string) (Config, error) {
	values := map[string]string{}
	for i := 0; i < len(args); i += 2 {
		at := slices.IndexFunc(windowsParameters, func(p string) bool { return strings.EqualFold(p, args[i]) })
		switch {
		case at < 0:
			return Config{}, fmt.Errorf("%s: a parameter cannot be found that matches parameter name '%s'", windowsBootstrap, args[i])
		case i+1 >= len(args):
			return Config{}, fmt.Errorf("%s: missing an argument for parameter '%s'", windowsBootstrap, args[i])
		}
		values[windowsParameters[at]] = args[i+1]
	}
	cfg := Config{
		UseENIMaxPods: true,
		ClusterName:   values["-EKSClusterName"],
		Endpoint:      values["-APIServerEndpoint"],
		ServiceCIDR:   values["-ServiceCIDR"],
	}
	if cfg.Endpoint == "" || values["-Base64ClusterCA"] == "" {
		return Config{}, fmt.Errorf(
			"%s: -APIServerEndpoint and -Base64ClusterCA are needed: the simulated instance does not call the EKS API",
			windowsBootstrap,
		)
	}
	if dns := values["-DNSClusterIP"]; dns != "" {
		cfg.Kubelet.ClusterDNS = []string{dns}
	}
	var err error
	if cfg.CA, err = decodeCA(values["-Base64ClusterCA"]); err != nil {
		return Config{}, err
	}
	flags, err := words(values["-KubeletExtraArgs"])
	if err != nil {
		return Config{}, fmt.Errorf("%s: -KubeletExtraArgs: %w", windowsBootstrap, err)
	}
	return cfg, applyFlags(&cfg, flags)
}

// The part of PowerShell that bootstrap scripts use: words, both kinds of quotes, backticks, comments, assignments of
// variables and their expansion. All else is stepped over.

// quotes are the characters that PowerShell takes for a quotation mark: besides the two of ASCII the typographic ones.
const singleQuotes, doubleQuotes = "'\u2018\u2019\u201a\u201b", "\"\u201c\u201d\u201e"

// powerShell reads a script as a list of statements, each a list of words with variables expanded.
func powerShell(script string) ([][]string, error) {
	l := powerShellLexer{in: []rune(strings.ReplaceAll(script, "\r", "")), vars: map[string]string{"env:programfiles": `C:\Program Files`}}
	for l.pos < len(l.in) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.endStatement()
	return l.done, nil
}

type powerShellLexer struct {
	in        []rune
	pos       int
	word      strings.Builder
	open      bool // a word has begun, possibly an empty quoted one
	statement []string
	done      [][]string
	vars      map[string]string // by lower-case name
}

// next consumes one character or one quoted string.
func (l *powerShellLexer) next() error {
	r := l.in[l.pos]
	l.pos++
	switch {
	case r == '\n' || r == ';':
		l.endStatement()
	case r == ' ' || r == '\t':
		l.endWord()
	case r == '#' && !l.open:
		for l.pos < len(l.in) && l.in[l.pos] != '\n' {
			l.pos++
		}
	case r == '`' && l.pos < len(l.in): // continues the line, or takes the next character as it is
		if l.in[l.pos] != '\n' {
			l.put(l.in[l.pos])
		}
		l.pos++
	case strings.ContainsRune(singleQuotes, r):
		return l.single()
	case strings.ContainsRune(doubleQuotes, r):
		return l.double()
	case r == '$' && len(l.statement) > 0:
		l.expand()
	default:
		l.put(r)
	}
	return nil
}

func (l *powerShellLexer) put(r rune) {
	l.open = true
	l.word.WriteRune(r)
}

// single reads to the end of a quoted string in which only a doubled quotation mark stands for something else: for itself.
func (l *powerShellLexer) single() error {
	l.open = true
	for ; l.pos < len(l.in); l.pos++ {
		if !strings.ContainsRune(singleQuotes, l.in[l.pos]) {
			l.word.WriteRune(l.in[l.pos])
			continue
		}
		if l.pos+1 >= len(l.in) || !strings.ContainsRune(singleQuotes, l.in[l.pos+1]) {
			l.pos++
			return nil
		}
		l.pos++
		l.word.WriteRune(l.in[l.pos])
	}
	return fmt.Errorf("the string is missing the terminator: '")
}

func (l *powerShellLexer) double() error {
	l.open = true
	for l.pos < len(l.in) {
		r := l.in[l.pos]
		l.pos++
		switch {
		case strings.ContainsRune(doubleQuotes, r):
			if l.pos >= len(l.in) || !strings.ContainsRune(doubleQuotes, l.in[l.pos]) {
				return nil
			}
			l.word.WriteRune(l.in[l.pos])
			l.pos++
		case r == '`' && l.pos < len(l.in):
			l.word.WriteRune(l.in[l.pos])
			l.pos++
		case r == '$':
			l.expand()
		default:
			l.word.WriteRune(r)
		}
	}
	return fmt.Errorf("the string is missing the terminator: \"")
}

var powerShellVariable = regexp.MustCompile(`^(?:\{([A-Za-z_][A-Za-z0-9_:]*)\}|((?:env:)?[A-Za-z_][A-Za-z0-9_]*))`)

// expand handles $NAME, ${NAME} and $env:NAME; any other use of $ stays as it is written.
func (l *powerShellLexer) expand() {
	m := powerShellVariable.FindStringSubmatch(string(l.in[l.pos:]))
	if m == nil {
		l.put('$')
		return
	}
	l.pos += len([]rune(m[0]))
	l.open = true
	l.word.WriteString(l.vars[strings.ToLower(m[1]+m[2])])
}

func (l *powerShellLexer) endWord() {
	if l.open {
		l.statement = append(l.statement, l.word.String())
		l.word.Reset()
		l.open = false
	}
}

var powerShellTarget = regexp.MustCompile(`^(?:\[\w+\])?\$([A-Za-z_][A-Za-z0-9_]*)$`)

// endStatement keeps the variable of an assignment ([type]$NAME = WORD), and any other statement whole.
func (l *powerShellLexer) endStatement() {
	l.endWord()
	s := l.statement
	l.statement = nil
	if len(s) == 0 {
		return
	}
	if m := powerShellTarget.FindStringSubmatch(s[0]); m != nil && len(s) == 3 && s[1] == "=" {
		l.vars[strings.ToLower(m[1])] = s[2]
		return
	}
	l.done = append(l.done, s)
}
