package authn

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Identity is the signer of a token, as returned by STS.
type Identity struct {
	// ARN is that of the caller: arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION for a role.
	ARN string
	// Principal is the ARN by which mappings know the caller: arn:aws:iam::ACCOUNT:role/ROLE, always
	// without the role's path, since a session's ARN does not carry it.
	Principal string
	Account   string
	// Session is the name of the role session, which on an instance is the instance's ID; empty for a user.
	Session string
	// UserID is the unique ID of the caller, such as AROA...:i-0123.
	UserID string
	// AccessKeyID is the key the token was signed with.
	AccessKeyID string
}

// errDenied is an answer of STS that querying again will not change.
var errDenied = errors.New("STS denies the signature")

type callerIdentity struct {
	ARN     string `xml:"GetCallerIdentityResult>Arn"`
	UserID  string `xml:"GetCallerIdentityResult>UserId"`
	Account string `xml:"GetCallerIdentityResult>Account"`
}

// callSTS calls the URL of a token. A rejection wraps errDenied; any other error may go away.
func (a *Authenticator) callSTS(ctx context.Context, u *url.URL) (Identity, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return Identity{}, err
	}
	req.Header.Set(clusterHeader, a.cfg.Cluster)
	resp, err := a.cfg.HTTP.Do(req)
	if err != nil {
		return Identity{}, fmt.Errorf("call STS: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return Identity{}, fmt.Errorf("read STS response: %w", err)
	}
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return Identity{}, fmt.Errorf("STS answered %s", resp.Status)
	case resp.StatusCode != http.StatusOK:
		return Identity{}, fmt.Errorf("%w: %s", errDenied, resp.Status)
	}
	var caller callerIdentity
	if err := xml.Unmarshal(body, &caller); err != nil {
		return Identity{}, fmt.Errorf("decode STS response: %w", err)
	}
	id, err := identityOf(caller)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", errDenied, err)
	}
	id.AccessKeyID, _, _ = strings.Cut(u.Query().Get("X-Amz-Credential"), "/")
	return id, nil
}

// identityOf derives the principal from the ARN of a caller.
func identityOf(caller callerIdentity) (Identity, error) {
	id := Identity{ARN: caller.ARN, Principal: caller.ARN, Account: caller.Account, UserID: caller.UserID}
	fields := strings.SplitN(caller.ARN, ":", 6) // arn, partition, service, region, account, resource
	if len(fields) != 6 || fields[0] != "arn" {
		return Identity{}, fmt.Errorf("caller %q is not an ARN", caller.ARN)
	}
	if fields[2] != "sts" {
		return id, nil
	}
	resource := strings.Split(fields[5], "/")
	if len(resource) != 3 || resource[0] != "assumed-role" {
		return Identity{}, fmt.Errorf("caller %q is neither a role nor a user", caller.ARN)
	}
	id.Principal = fmt.Sprintf("arn:%s:iam::%s:role/%s", fields[1], fields[4], resource[1])
	id.Session = resource[2]
	return id, nil
}
