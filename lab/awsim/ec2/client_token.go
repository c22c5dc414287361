package ec2

import (
	"hash/fnv"
	"net/url"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// tokenLife is how long EC2 remembers a client token.
const tokenLife = 24 * time.Hour

// remembered is the answer that a client token stands for.
type remembered struct {
	parameters uint64 // see fingerprint
	answer     any
	until      time.Time
}

// once performs do unless the client token was used for the same action before: then it gives the same answer again, or
// rejects when the parameters differ. Failures are not remembered. The lock must be held.
func once[Out any](e *EC2, r *protocol.Request, token string, do func() (*Out, error)) (*Out, error) {
	if token == "" {
		return do()
	}
	now := e.cfg.Clock.Now()
	key := r.Action + " " + r.Principal.AccountID + " " + token
	parameters := fingerprint(r.Form)
	if earlier, ok := e.tokens[key]; ok && now.Before(earlier.until) {
		if earlier.parameters != parameters {
			return nil, protocol.Errorf(
				"IdempotentParameterMismatch",
				"Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
			)
		}
		out, _ := earlier.answer.(*Out)
		return out, nil
	}
	out, err := do()
	if err == nil {
		e.forgetTokens(now)
		e.tokens[key] = remembered{parameters: parameters, answer: out, until: now.Add(tokenLife)}
	}
	return out, err
}

// keptTokens is how many tokens are kept before those that finished are looked for.
const keptTokens = 4096

func (e *EC2) forgetTokens(now time.Time) {
	if len(e.tokens) < max(keptTokens, e.tokensSwept*2) {
		return
	}
	for key, t := range e.tokens {
		if !now.Before(t.until) {
			delete(e.tokens, key)
		}
	}
	e.tokensSwept = len(e.tokens)
}

// fingerprint is equal for requests with equal parameters, the token aside.
func fingerprint(form url.Values) uint64 {
	var sum uint64
	for name, values := range form {
		if name == "ClientToken" {
			continue
		}
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // a hash does not fail
		for _, v := range values {
			_, _ = h.Write([]byte("\x00" + v))
		}
		sum += h.Sum64() // commutes, as parameters do
	}
	return sum
}
