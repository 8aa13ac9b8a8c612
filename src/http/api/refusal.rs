//! Answers that are a no, as the API server words its own: a `Status`, which every client of Kubernetes can read.

use axum::Json;
use axum::http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    code: StatusCode,
    reason: &'static str,
    message: String,
}

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: &str) -> Self {
        Self { code, reason, message: message.to_owned() }
    }
    /// The request itself is wrong.
    pub(super) fn bad(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }
    /// Nobody knows who asks.
    pub(super) fn unknown() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "a bearer token that the cluster's API server accepts is needed")
    }
    /// They may not.
    pub(super) fn forbidden(message: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }
    /// There is no such thing.
    pub(super) fn not_found(message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }
    /// Not now.
    pub(super) fn unavailable(message: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }
    /// Too many ask.
    pub(super) fn busy() -> Self {
        Self::unavailable("too many requests at a time; ask again in a moment")
    }
    /// They ask too much at a time.
    pub(super) fn too_many(most: usize) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", &format!("{most} requests of one user are served at a time; ask again in a moment"))
    }
    /// It took too long.
    pub(super) fn late() -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", "the answer took too long; ask for less, such as ?trials=0")
    }
    /// A bug of ours.
    pub(super) fn failed() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "the answer could not be made")
    }
    /// The status code.
    #[cfg(test)]
    pub(super) fn code(&self) -> u16 {
        self.code.as_u16()
    }
    /// The words.
    #[cfg(test)]
    pub(super) fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": self.code.as_u16(), "reason": self.reason,
            "message": self.message,
        });
        let mut response = (self.code, Json(body)).into_response();
        match self.code {
            StatusCode::UNAUTHORIZED => response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1")),
            _ => None,
        };
        response
    }
}
