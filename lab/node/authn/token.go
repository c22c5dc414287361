package authn

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	tokenPrefix   = "k8s-aws-v1."
	clusterHeader = "x-k8s-aws-id"
	// maxToken is a bound on what is decoded at all, in bytes.
	maxToken = 8 << 10
	// TokenLife is how long a token is valid, whatever its X-Amz-Expires.
	TokenLife = 15 * time.Minute
	// clockSkew is how far in the future a token may have been signed.
	clockSkew = 5 * time.Minute
	amzDate   = "20060102T150405Z"
	// emptySHA256 is the hash of the empty body of a GET request.
	emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// Signer makes tokens, as "aws eks get-token" does.
type Signer struct {
	// Endpoint is the URL of STS.
	Endpoint string
	Region   string
	// Cluster is the EKS name of the cluster that the tokens are for.
	Cluster string
	Now     func() time.Time
}

// Token returns a token of anyone who the credentials belong to.
func (s Signer) Token(ctx context.Context, credentials aws.Credentials) (string, error) {
	u, err := url.Parse(s.Endpoint)
	if err != nil {
		return "", fmt.Errorf("STS endpoint %q: %w", s.Endpoint, err)
	}
	u.Path = "/"
	u.RawQuery = url.Values{"Action": {"GetCallerIdentity"}, "Version": {"2011-06-15"}, "X-Amz-Expires": {"60"}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", fmt.Errorf("STS endpoint %q: %w", s.Endpoint, err)
	}
	req.Header.Set(clusterHeader, s.Cluster)
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, credentials, req, emptySHA256, "sts", s.Region, s.Now())
	if err != nil {
		return "", fmt.Errorf("presign GetCallerIdentity: %w", err)
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(signed)), nil
}

// allowedQuery are the parameters that a presigned GetCallerIdentity may have, in lower case.
var allowedQuery = []string{
	"action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires",
	"x-amz-security-token", "x-amz-signature", "x-amz-signedheaders", "x-amz-user-agent",
}

// parseToken returns the URL inside a token after making sure that calling it can do nothing but query
// STS, at the given host, for a caller's identity. The error names the problem, and never contains the token.
func parseToken(token, host string, now time.Time) (*url.URL, error) {
	encoded, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok {
		return nil, fmt.Errorf("token does not begin with %q", tokenPrefix)
	}
	if len(token) > maxToken {
		return nil, fmt.Errorf("token is longer than %d bytes", maxToken)
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(encoded, "="))
	if err != nil {
		return nil, fmt.Errorf("token is not base64url")
	}
	u, err := url.Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("token holds no URL")
	}
	if u.Host != host {
		return nil, fmt.Errorf("token was signed for host %q, not for %q", u.Host, host)
	}
	if u.Path != "/" && u.Path != "" || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("token holds a URL with more than a query")
	}
	return u, validateQuery(u.Query(), now)
}

func validateQuery(query url.Values, now time.Time) error {
	seen := map[string]string{}
	for key, values := range query {
		lower := strings.ToLower(key)
		if !slices.Contains(allowedQuery, lower) {
			return fmt.Errorf("token has the parameter %q, which is not allowed", key)
		}
		if _, twice := seen[lower]; twice || len(values) != 1 {
			return fmt.Errorf("token has the parameter %q twice", key)
		}
		seen[lower] = values[0]
	}
	if seen["action"] != "GetCallerIdentity" {
		return fmt.Errorf("token is for action %q, not GetCallerIdentity", seen["action"])
	}
	if !slices.Contains(strings.Split(strings.ToLower(seen["x-amz-signedheaders"]), ";"), clusterHeader) {
		return fmt.Errorf("token does not sign the header %s", clusterHeader)
	}
	signed, err := time.Parse(amzDate, seen["x-amz-date"])
	if err != nil {
		return fmt.Errorf("token has no valid X-Amz-Date")
	}
	if now.After(signed.Add(TokenLife)) {
		return fmt.Errorf("token expired: it was signed %s ago", now.Sub(signed).Round(time.Second))
	}
	if signed.After(now.Add(clockSkew)) {
		return fmt.Errorf("token was signed %s in the future", signed.Sub(now).Round(time.Second))
	}
	return nil
}
