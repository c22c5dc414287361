// Package credential holds the access keys of the simulated account and maps them to principals.
//
// Keys are of two kinds: the account administrator's, which never expire, and those of a role session, which carry a
// session token and an end. Signatures are not verified: knowing an access key ID (and its session token) is enough.
package credential

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
)

// AdminAccessKeyID is accepted as the account's administrator, with any secret.
const AdminAccessKeyID = "test"

// Credentials are what a client signs with.
type Credentials struct {
	AccessKeyID     string
	SecretAccessKey string
	SessionToken    string
	Expiration      time.Time // zero = never
}

// Principal is who makes a call.
type Principal struct {
	AccountID string
	// ARN as sts:GetCallerIdentity returns it: arn:aws:iam::A:root, or arn:aws:sts::A:assumed-role/ROLE/SESSION.
	ARN string
	// UserID as sts:GetCallerIdentity returns it: the account, or ROLE-ID:SESSION.
	UserID string
	// Role is the name of the assumed role without its path; empty for the account itself.
	Role string
	// RoleARN is the ARN of that role, path included (arn:aws:iam::A:role/PATH/ROLE).
	RoleARN string
	// Session is the name of the role session.
	Session string
}

// Anonymous reports that the call was not signed.
func (p Principal) Anonymous() bool { return p.ARN == "" }

// Problem is what is wrong with an access key.
type Problem int

// The problems of a key.
const (
	Unknown       Problem = iota + 1 // no such access key
	TokenMismatch                    // not the session token that was issued with the key
	Expired
)

// Error is why a key is not accepted.
type Error struct {
	Problem     Problem
	AccessKeyID string
}

// Error implements error.
func (e *Error) Error() string {
	switch e.Problem {
	case TokenMismatch:
		return fmt.Sprintf("access key %s: not its session token", e.AccessKeyID)
	case Expired:
		return fmt.Sprintf("access key %s: expired", e.AccessKeyID)
	default:
		return fmt.Sprintf("access key %s: unknown", e.AccessKeyID)
	}
}

// Ring issues and resolves keys. It is safe for concurrent use.
type Ring struct {
	accountID string
	seed      uint64
	now       func() time.Time

	mu     sync.Mutex
	issued uint64
	keys   map[string]key
}

type key struct {
	principal Principal
	token     string
	end       time.Time
}

// NewRing returns a ring that knows only the administrator. Keys are derived from seed and their number.
func NewRing(accountID string, seed uint64, now func() time.Time) *Ring {
	r := &Ring{accountID: accountID, seed: seed, now: now, keys: map[string]key{}}
	r.keys[AdminAccessKeyID] = key{principal: Principal{
		AccountID: accountID,
		ARN:       "arn:aws:iam::" + accountID + ":root",
		UserID:    accountID,
	}}
	return r
}

// Issue makes new session credentials for p that end after life.
func (r *Ring) Issue(p Principal, life time.Duration) Credentials {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.issued++
	sum := sha256.Sum256(fmt.Appendf(nil, "key %d %d", r.seed, r.issued))
	token := sha256.Sum256(fmt.Appendf(nil, "token %d %d", r.seed, r.issued))
	c := Credentials{
		AccessKeyID:     "ASIA" + strings.ToUpper(hex.EncodeToString(sum[:8])),
		SecretAccessKey: base64.StdEncoding.EncodeToString(sum[:30]),
		SessionToken:    "IQoJb3JpZ2luX2Vj" + base64.StdEncoding.EncodeToString(token[:]),
		Expiration:      r.now().Add(life).UTC().Truncate(time.Second),
	}
	r.keys[c.AccessKeyID] = key{principal: p, token: c.SessionToken, end: c.Expiration}
	return c
}

// Resolve returns the principal of an access key. The error is an *Error.
func (r *Ring) Resolve(accessKeyID, sessionToken string) (Principal, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.keys[accessKeyID]
	switch {
	case !ok:
		return Principal{}, &Error{Problem: Unknown, AccessKeyID: accessKeyID}
	case k.token != "" && k.token != sessionToken:
		return Principal{}, &Error{Problem: TokenMismatch, AccessKeyID: accessKeyID}
	case !k.end.IsZero() && !r.now().Before(k.end):
		return Principal{}, &Error{Problem: Expired, AccessKeyID: accessKeyID}
	}
	return k.principal, nil
}
